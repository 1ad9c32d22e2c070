"""`Delivery`, which tells a handler about the delivery that it handles."""

from __future__ import annotations

from headwater.messages.keys import Pairs


class Delivery:
    """One delivery of one entry to a consumer group. A handler with a parameter of this type gets it.

    >>> import asyncio
    >>> from headwater import App, Stream
    >>> app, orders = App(), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order: dict[str, int], delivery: Delivery) -> None:
    ...     print(delivery.stream, delivery.count, delivery.redelivered, delivery.fields)
    >>> async def main() -> None:
    ...     async with app.test() as t:
    ...         await t.send(orders, {"id": 17})
    >>> asyncio.run(main())
    orders 1 False [(b'data', b'{"id":17}')]

    ``f"{delivery.stream}/{delivery.id}"`` is the same at each delivery of an entry, so it can be the
    idempotency key of a request to another system.
    """

    __slots__ = ("_excused", "_flat", "_lost", "consumer", "count", "group", "id", "stream")

    def __init__(
        self, id: str, *, stream: str, group: str, consumer: str, count: int, flat: list[bytes]
    ) -> None:
        self.id = id
        """The entry's id, such as ``"1526569498055-0"``."""
        self.stream = stream
        """The name of the stream, or of the partition if the stream has partitions."""
        self.group = group
        """The name of the consumer group."""
        self.consumer = consumer
        """The name of this process in the group, as XINFO CONSUMERS lists it."""
        self.count = count
        """Number of deliveries of this entry to its group, this one included. A delivery that ended because its
        process died counts here. Source: the delivery count in the command page of XPENDING."""
        self._flat = flat
        self._lost = False
        self._excused = 0

    @property
    def attempts(self) -> int:
        """Number of deliveries that count towards ``max_deliveries``, this one included. A delivery that ended
        because its process died, with other messages in flight, does not count."""
        return max(1, self.count - self._excused) if self._excused else self.count

    def excuse(self, deliveries: int) -> None:
        """Set the number of deliveries that do not count. Called by the worker."""
        self._excused = deliveries

    @property
    def redelivered(self) -> bool:
        """True if the entry was delivered before, so that a handler may have done part of its work."""
        return self.count > 1

    @property
    def lost(self) -> bool:
        """True if another worker owns the entry now. An ``async`` handler is cancelled then. A handler in a thread
        can check this and stop. If it returns first, before the other worker's handler, its result counts."""
        return self._lost

    def mark_lost(self) -> None:
        """Record that another worker owns the entry. Called by the worker."""
        self._lost = True

    @property
    def fields(self) -> Pairs:
        """The entry's fields as they are in the stream: pairs of name and value, as bytes, in order."""
        return list(zip(self._flat[::2], self._flat[1::2], strict=True))

    def __repr__(self) -> str:
        return f"<Delivery {self.count} of {self.stream} {self.id} to {self.group}>"
