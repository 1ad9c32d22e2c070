"""Dead letters: written in one step with the settlement, listed and dropped. See also `replay`.

Rule. A record is written by the settlement of the entry it is about, so there is exactly one,
however often the worker that wrote it dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.groups.operation import Operation, accepted
from headwater.groups.settling import Addition, How, Settlement
from headwater.messages import (
    DeadLetter,
    dead_letter_fields,
    error_text,
    parse_dead_letter,
    trace_text,
)

PAGE = 100
"""Records read at a time."""


class Receiver(Protocol):
    """To whom the entry was delivered: a member of a group, or the delivery itself."""

    @property
    def stream(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def consumer(self) -> str: ...


def bury(
    receiver: Receiver,
    destination: str,
    *,
    id: bytes,
    fields: Sequence[bytes],
    deliveries: int,
    error: BaseException | str,
    at_ms: int,
) -> Settlement:
    """The settlement that makes an entry a dead letter. ``error`` in words has no trace."""
    words, trace = (error, "") if isinstance(error, str) else (error_text(error), trace_text(error))
    record = dead_letter_fields(
        fields,
        stream=receiver.stream,
        group=receiver.group,
        entry_id=id.decode(),
        consumer=receiver.consumer,
        deliveries=deliveries,
        error=words,
        trace=trace,
        at_ms=at_ms,
    )
    return Settlement(id, How.ACK, additions=[Addition(destination, record)])


def page(destination: str, *, after: str = "", count: int = PAGE) -> Operation[list[DeadLetter]]:
    """Up to ``count`` records behind the one with id ``after``, oldest first."""
    start = f"({after}" if after else "-"
    replies = yield [["XRANGE", destination, start, "+", "COUNT", count]]
    return [parse_dead_letter(entry[0].decode(), entry[1]) for entry in accepted(replies[0]) or ()]


def find(destination: str, ids: Sequence[str]) -> Operation[list[DeadLetter]]:
    """The records with these ids; `HeadwaterError` names those that are not there."""
    replies = yield [["XRANGE", destination, wanted, wanted] for wanted in ids]
    found = []
    for wanted, reply in zip(ids, replies, strict=True):
        entries = accepted(reply)
        if not entries:
            raise HeadwaterError(
                f"{destination} has no dead letter {wanted}; see `headwater dead list`"
            )
        found.append(parse_dead_letter(entries[0][0].decode(), entries[0][1]))
    return found


def drop(destination: str, ids: Sequence[str]) -> Operation[int]:
    """Remove records for good; how many there were."""
    replies = yield [["XDEL", destination, *ids]]
    return int(accepted(replies[0]))
