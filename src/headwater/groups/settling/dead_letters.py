"""Writes, lists and deletes the records of dead letters. `replay` hands their entries back to the group.

Rule. The settlement of an entry and its record are one step. So there is exactly one record, even if the worker
dies. A record that cannot be added in that step (`settling.one_step`) is added before it, and may be added twice.
If an entry is so large that no record can have its fields, its record says so, and the entry stays in its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Operation, accepted
from headwater.groups.settling.settling import Addition, How, Settlement
from headwater.messages.dead import (
    MAX_ERROR_CHARACTERS,
    DeadLetter,
    dead_letter_fields,
    error_text,
    parse_dead_letter,
    trace_text,
)

PAGE = 100
"""Default number of records that are read at a time."""


class Receiver(Protocol):
    """The stream, group and consumer to which the entry was delivered: a `Member` or a `Delivery`."""

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
    """Return the settlement that makes an entry a dead letter. If ``error`` is a string, the dead letter
    has an empty ``trace``."""
    words, trace = (error, "") if isinstance(error, str) else (error_text(error), trace_text(error))
    record, about = (
        dead_letter_fields(
            content,
            stream=receiver.stream,
            group=receiver.group,
            entry_id=id.decode(),
            consumer=receiver.consumer,
            deliveries=deliveries,
            error=text,
            trace=trace,
            at_ms=at_ms,
        )
        for content, text in ((fields, words), ((), _with_omission(words, len(fields) // 2)))
    )
    shorter = Addition(destination, about)
    return Settlement(id, How.ACK, additions=[Addition(destination, record)], shorter=shorter)


def _with_omission(error: str, fields: int) -> str:
    """Return the error of a record that lacks the entry's fields."""
    note = (
        f" (this record lacks the entry's fields, {fields} in number, which are too large for a record; the entry is "
        "still in its stream)"
    )
    return error[: MAX_ERROR_CHARACTERS - len(note)] + note


def page(
    destination: str, *, after: str = "", until: str = "+", count: int = PAGE
) -> Operation[list[DeadLetter]]:
    """Return up to ``count`` records after the id ``after`` and up to the id ``until``, oldest first."""
    start = f"({after}" if after else "-"
    replies = yield [["XRANGE", destination, start, until, "COUNT", count]]
    return [parse_dead_letter(entry[0].decode(), entry[1]) for entry in accepted(replies[0]) or ()]


def find(destination: str, ids: Sequence[str]) -> Operation[list[DeadLetter]]:
    """Return the records with these ids. Raises `HeadwaterError` for the first id that does not exist."""
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
    """Delete the records with these ids, and return the number of those that existed."""
    replies = yield [["XDEL", destination, *ids]]
    return int(accepted(replies[0]))
