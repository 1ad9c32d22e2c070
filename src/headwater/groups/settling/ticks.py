"""Adds ticks, which are messages at declared times. Each is added once.

    worker ── look: the store's time, the last tick, the declared rule
           ── XADD {stream} <time of the tick>-0 …

Rule 1. The id of a tick is its time. A stream accepts only ids above its last id. So one worker adds a tick, and
        others cannot add it again. The clock of the store decides which ticks are due.
Rule 2. The last id of the stream is the last tick. It is not recorded elsewhere, and trimming does not change it.
Rule 3. The hash ``{stream}:hw:ticks`` has the rule and the time of its declaration. No tick before that time is due.
        The rule that was declared last is valid. A worker that has declared another rule adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import text_of
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Word,
    accepted,
    executed,
    mapping,
    server_ms,
    whole_number,
)
from headwater.messages.keys import Pairs, ticks_key

GROUP: Final = "ticks"
"""The consumer group of each stream of ticks."""


class TicksState(NamedTuple):
    """The state of a stream of ticks in the store. Times are in Unix milliseconds of the store."""

    now_ms: int
    rule: str
    """The rule that is valid."""
    last_ms: int
    """Time of the last tick, or of the rule's declaration if that was later."""
    ticked_ms: int | None
    """Time of the last tick; None before the first one."""
    next_ms: int | None
    """Time of the next tick, as workers recorded it; None if they have not."""


def _since(rule: str) -> str:
    return f"since {rule}"


def declare_rule(stream: str, rule: str) -> Operation[None]:
    """Make ``rule`` the valid rule of the stream."""
    key = ticks_key(stream)
    replies = yield [["TIME"], ["HMGET", key, "rule", _since(rule)]]
    now, (before, since) = server_ms(replies[0]), accepted(replies[1])
    # If several workers declare the rule, the first one sets the time.
    commands: list[Command] = [["HSETNX", key, _since(rule), now], ["HSET", key, "rule", rule]]
    if since is not None and whole_number(since) is None:
        commands.insert(0, ["HDEL", key, _since(rule)])  # another program wrote it
    if before is not None and text_of(before) != rule:
        commands.append(["HDEL", key, _since(text_of(before)), "next"])
    for reply in executed((yield [["MULTI"], *commands, ["EXEC"]])):
        accepted(reply)


def state(stream: str, rule: str | None = None) -> Operation[TicksState | None]:
    """Return the state of a stream of ticks; None if no rule is declared. If ``rule`` or its time was deleted, as with
    the store's data, it is declared again."""
    key = ticks_key(stream)
    replies = yield [["TIME"], ["HGETALL", key], ["XINFO", "STREAM", stream]]
    known = {text_of(name): value for name, value in mapping(accepted(replies[1])).items()}
    now, found = server_ms(replies[0]), text_of(known.get("rule", b""))
    since = whole_number(known.get(_since(found)))
    if rule is not None and (not found or (found == rule and since is None)):
        yield from declare_rule(stream, rule)
        return (yield from state(stream))
    if not found:
        return None
    ticked = 0
    if not isinstance(replies[2], Refused):
        ticked = StreamID.parse(mapping(replies[2])[b"last-generated-id"]).ms
    return TicksState(
        now,
        found,
        last_ms=max(ticked, now if since is None else since),
        ticked_ms=ticked or None,
        next_ms=whole_number(known.get("next")),
    )


def state_if_told(stream: str, group: str) -> Operation[TicksState | None]:
    """Return the state of a stream of ticks, for reports; None if ``group`` is not the group of ticks, or if the user
    may not read the state."""
    if group != GROUP:
        return None
    try:
        return (yield from state(stream))
    except Refused:
        return None


def add_ticks(
    stream: str, ticks: Sequence[tuple[int, Pairs]], *, maxlen: int, next_ms: int | None
) -> Operation[int]:
    """Add ticks, each by its time and its fields, and record the next one. Return the number of new ticks."""
    trim: list[Word] = ["MAXLEN", "~", maxlen]
    commands: list[Command] = [
        ["XADD", stream, *trim, f"{ms}-0", *chain.from_iterable(fields)] for ms, fields in ticks
    ]
    recorded: list[Command] = (
        [] if next_ms is None else [["HSET", ticks_key(stream), "next", next_ms]]
    )
    replies = yield [*commands, *recorded]
    added = 0
    for reply in replies[: len(commands)]:
        if not isinstance(reply, Refused):
            added += 1
        elif "equal or smaller" not in str(reply):
            raise reply
    for reply in replies[len(commands) :]:
        accepted(reply)
    return added
