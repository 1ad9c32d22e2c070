"""What a handler may know of the delivery that it handles."""

from __future__ import annotations

from headwater.messages import Pairs


class Delivery:
    """One delivery of one entry. A handler gets it by naming a parameter of this type."""

    __slots__ = ("_excused", "_flat", "_lost", "consumer", "count", "group", "id", "stream")

    def __init__(
        self, id: str, *, stream: str, group: str, consumer: str, count: int, flat: list[bytes]
    ) -> None:
        self.id = id
        """The entry's id, as the server prints it."""
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self.count = count
        """Deliveries of this entry to its group, this one included; a crash counts as one."""
        self._flat = flat
        self._lost = False
        self._excused = 0

    @property
    def attempts(self) -> int:
        """Deliveries that count towards ``max_deliveries``, this one included: those that ended
        because their process died with other messages in it do not."""
        return max(1, self.count - self._excused) if self._excused else self.count

    def excuse(self, deliveries: int) -> None:
        """For the worker: so many of the deliveries do not count."""
        self._excused = deliveries

    @property
    def redelivered(self) -> bool:
        """It was delivered before: what the handler does may have been done in part."""
        return self.count > 1

    @property
    def lost(self) -> bool:
        """The entry belongs to another worker now: whatever the handler returns is dropped. An
        asynchronous handler is cancelled then; one in a thread may ask, and stop."""
        return self._lost

    def mark_lost(self) -> None:
        """For the worker: the entry is another's."""
        self._lost = True

    @property
    def fields(self) -> Pairs:
        """The entry's fields as they are in the stream, in order."""
        return list(zip(self._flat[::2], self._flat[1::2], strict=True))

    def __repr__(self) -> str:
        return f"<Delivery {self.count} of {self.stream} {self.id} to {self.group}>"
