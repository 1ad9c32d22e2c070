"""Lists and cancels the messages that are scheduled for a stream. This works even if no worker has ever run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.common.names import text_of
from headwater.groups.protocol.operation import Operation, Refused, accepted, batched, server_ms
from headwater.groups.settling.scheduling import cancel_each, due_ms, published
from headwater.messages.keys import later_key
from headwater.operations.records import Action, record

PAGE = 500
"""Maximum number of messages that are read, or cancelled, in one step."""


class ScheduledMessage(NamedTuple):
    """A message that is published later."""

    id: str
    due_ms: int
    """Milliseconds until the message is due, by the server's clock; 0 if it is due but not published yet."""
    fields: Sequence[tuple[str, str]]


def scheduled(stream: str) -> Operation[list[ScheduledMessage]]:
    """Return the messages that are scheduled for a stream, in the order in which they are due."""
    key, start = later_key(stream), "-"
    found: list[ScheduledMessage] = []
    while True:
        replies = yield [["TIME"], ["XRANGE", key, start, "+", "COUNT", PAGE]]
        now, page = server_ms(replies[0]), accepted(replies[1])
        for entry_id, flat in page:
            pairs = [(text_of(name), text_of(value)) for name, value in published(flat)]
            due = max(0, due_ms(entry_id, flat) - now)
            found.append(ScheduledMessage(entry_id.decode(), due, pairs))
        if len(page) < PAGE:
            break
        start = f"({page[-1][0].decode()}"
    return sorted(found, key=lambda one: one.due_ms)


def cancel_all(
    stream: str, ids: Sequence[str], done: list[str] | None = None
) -> Operation[list[str]]:
    """Cancel messages; return the ids of those that were still scheduled, and add them to ``done`` page by page. A
    message is published or cancelled, never both. If the server refuses a later page, the cancellations before it
    are recorded."""
    cancelled: list[str] = [] if done is None else done
    refused: Refused | None = None
    try:
        for page in batched(ids, PAGE):
            cancelled += yield from cancel_each(stream, page)
    except Refused as error:
        refused = error
    if cancelled or refused is None:
        yield from record(stream, Action.CANCEL, cancelled, refused=len(ids) - len(cancelled))
    if refused is not None:
        raise refused
    return cancelled
