"""Makes replies of two servers comparable: rounds ages to hours, sorts what has no defined order.

Histories set ages in hours (XCLAIM IDLE 7200000), so a rounded age still shows whether an entry is
old, but not how long the run took. Nothing else is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.testing.replies import Failure, Map, Reply, Simple

HOUR_MS = 3_600_000
MOST_HOURS = 1000
"""An age above it is only said to be so."""

Command = tuple[bytes, ...]


class Circumstances(NamedTuple):
    """What replies depend on. ``hidden`` has the names of fields that only one of the servers has,
    or that differ (known_differences.toml)."""

    now_ms: int
    hidden: frozenset[bytes] = frozenset()


def comparable(
    history: Sequence[Command], replies: Sequence[Reply], circumstances: Circumstances
) -> list[Reply]:
    """Return the replies to ``history`` without what depends on the run; also those within EXEC."""
    found: list[Reply] = []
    queued: list[Command] = []
    for command, reply in zip(history, replies, strict=True):
        word = command[0].upper()
        if reply == Simple(b"QUEUED"):
            queued.append(command)
        elif word == b"EXEC" and isinstance(reply, list):
            reply = [
                _masked(inner, part, circumstances)
                for inner, part in zip(queued, reply, strict=True)
            ]
        else:
            reply = _masked(command, reply, circumstances)
        if word in (b"EXEC", b"DISCARD"):
            queued = []
        found.append(reply)
    return found


def _masked(command: Command, reply: Reply, circumstances: Circumstances) -> Reply:
    words = tuple(word.upper() for word in command[:2])
    mask = _MASKS.get(words) or _MASKS.get(words[:1])
    return reply if mask is None else mask(reply, circumstances)


def pairs_of(reply: Reply) -> list[tuple[Reply, Reply]] | None:
    """Return a map as pairs, for either protocol version; None if the reply cannot be a map."""
    if isinstance(reply, Map):
        return list(reply.pairs)
    if isinstance(reply, list) and len(reply) % 2 == 0:
        return list(zip(reply[0::2], reply[1::2], strict=True))
    return None


def _hours(age_ms: Reply) -> Reply:
    """Round an age to hours. -1 has its own meaning and is unchanged.

    Tests set ages in whole hours, except that since 1970: a server may reply just after another's half hour.
    """
    if not isinstance(age_ms, int) or age_ms < 0:
        return age_ms
    if age_ms > MOST_HOURS * HOUR_MS:
        return b"more than %d hours" % MOST_HOURS
    return b"about %d hours" % round(age_ms / HOUR_MS)


def _age(time_ms: Reply, now_ms: int) -> Reply:
    """Convert a time to an age. 0 and -1 have their own meaning and are unchanged."""
    if not isinstance(time_ms, int) or time_ms <= 0:
        return time_ms
    return _hours(max(0, now_ms - time_ms))


def _changed(
    reply: Reply, circumstances: Circumstances, change: Callable[[bytes, Reply], Reply]
) -> Reply:
    """Change each value of a map by its name, and remove hidden fields."""
    pairs = pairs_of(reply)
    if pairs is None:
        return reply
    left = tuple(
        (name, change(name, value))
        for name, value in pairs
        if isinstance(name, bytes) and name not in circumstances.hidden
    )
    if isinstance(reply, Map):
        return Map(left)
    return [part for pair in left for part in pair]


def _all_changed(
    reply: Reply, circumstances: Circumstances, change: Callable[[bytes, Reply], Reply]
) -> Reply:
    if not isinstance(reply, list):
        return reply
    return [_changed(one, circumstances, change) for one in reply]


def _xpending(reply: Reply, _circumstances: Circumstances) -> Reply:
    if not isinstance(reply, list):
        return reply
    return [
        [row[0], row[1], _hours(row[2]), row[3]] if isinstance(row, list) and len(row) == 4 else row
        for row in reply
    ]


def _xinfo_groups(reply: Reply, circumstances: Circumstances) -> Reply:
    return _all_changed(reply, circumstances, lambda _name, value: value)


def _xinfo_consumers(reply: Reply, circumstances: Circumstances) -> Reply:
    def change(name: bytes, value: Reply) -> Reply:
        return _hours(value) if name in (b"idle", b"inactive") else value

    return _all_changed(reply, circumstances, change)


def _xinfo_stream(reply: Reply, circumstances: Circumstances) -> Reply:
    now_ms = circumstances.now_ms

    def consumer(name: bytes, value: Reply) -> Reply:
        if name in (b"seen-time", b"active-time"):
            return _age(value, now_ms)
        if name == b"pending" and isinstance(value, list):
            return [_aged(row, 1, now_ms) for row in value]
        return value

    def group(name: bytes, value: Reply) -> Reply:
        if name == b"pending" and isinstance(value, list):
            return [_aged(row, 2, now_ms) for row in value]
        if name == b"consumers":
            return _all_changed(value, circumstances, consumer)
        return value

    def stream(name: bytes, value: Reply) -> Reply:
        return _all_changed(value, circumstances, group) if name == b"groups" else value

    return _changed(reply, circumstances, stream)


def _aged(row: Reply, at: int, now_ms: int) -> Reply:
    if not isinstance(row, list):
        return row
    return [*row[:at], _age(row[at], now_ms), *row[at + 1 :]]


def _sorted(reply: Reply, _circumstances: Circumstances) -> Reply:
    return sorted(reply, key=repr) if isinstance(reply, list) else reply


def _scan(reply: Reply, circumstances: Circumstances) -> Reply:
    if not isinstance(reply, list) or len(reply) != 2:
        return reply
    return [reply[0], _sorted(reply[1], circumstances)]


def _hscan(reply: Reply, _circumstances: Circumstances) -> Reply:
    if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], list):
        return reply
    pairs: list[Reply] = [reply[1][at : at + 2] for at in range(0, len(reply[1]), 2)]
    return [reply[0], sorted(pairs, key=repr)]


_LONG_S = 1_000_000


def _seconds(left: Reply) -> Reply:
    """Round a remaining time to tens of seconds, or to days if it is long: the server's clock runs while the
    test's does not."""
    if not isinstance(left, int) or left <= 0:
        return left
    return round(left / 10) * 10 if left < _LONG_S else b"%d days" % round(left / 86_400)


def _ttl(reply: Reply, _circumstances: Circumstances) -> Reply:
    return _seconds(reply)


def _pttl(reply: Reply, _circumstances: Circumstances) -> Reply:
    return _seconds(round(reply / 1000)) if isinstance(reply, int) and reply > 0 else reply


def _hello(reply: Reply, _circumstances: Circumstances) -> Reply:
    """Compare only whether HELLO succeeds, since its contents differ."""
    return reply if isinstance(reply, Failure) else b"hello"


def _acl_getuser(reply: Reply, circumstances: Circumstances) -> Reply:
    def change(name: bytes, value: Reply) -> Reply:
        if name == b"flags" and isinstance(value, list):
            return [flag for flag in value if flag not in circumstances.hidden]
        if name == b"selectors":
            return _all_changed(value, circumstances, change)
        return value

    return _changed(reply, circumstances, change)


def _acl_list(reply: Reply, circumstances: Circumstances) -> Reply:
    if not isinstance(reply, list):
        return reply
    return [
        b" ".join(word for word in line.split(b" ") if word not in circumstances.hidden)
        for line in reply
        if isinstance(line, bytes)
    ]


def _acl_log(reply: Reply, circumstances: Circumstances) -> Reply:
    """Mask what is specific to a run: clients, times and numbers of entries."""

    def change(name: bytes, value: Reply) -> Reply:
        if name in (b"age-seconds", b"client-info"):
            return type(value).__name__.encode()
        return _age(value, circumstances.now_ms) if name.startswith(b"timestamp") else value

    hidden = Circumstances(circumstances.now_ms, circumstances.hidden | {b"entry-id"})
    return _all_changed(reply, hidden, change)


def _end(unit_ms: int) -> Callable[[Reply, Circumstances], Reply]:
    """Return a mask that converts a future time to the remaining time. -1 and -2 are unchanged."""

    def mask(reply: Reply, circumstances: Circumstances) -> Reply:
        if not isinstance(reply, int) or reply < 0:
            return reply
        return _seconds(round((reply * unit_ms - circumstances.now_ms) / 1000))

    return mask


_MASKS: dict[tuple[bytes, ...], Callable[[Reply, Circumstances], Reply]] = {
    (b"XPENDING",): _xpending,
    (b"XINFO", b"GROUPS"): _xinfo_groups,
    (b"XINFO", b"CONSUMERS"): _xinfo_consumers,
    (b"XINFO", b"STREAM"): _xinfo_stream,
    (b"HELLO",): _hello,
    (b"ACL", b"GETUSER"): _acl_getuser,
    (b"ACL", b"LIST"): _acl_list,
    (b"ACL", b"LOG"): _acl_log,
    (b"KEYS",): _sorted,
    (b"SCAN",): _scan,
    (b"SSCAN",): _scan,
    (b"HSCAN",): _hscan,
    (b"HKEYS",): _sorted,
    (b"HVALS",): _sorted,
    (b"SMEMBERS",): _sorted,
    (b"TTL",): _ttl,
    (b"PTTL",): _pttl,
    (b"EXPIRETIME",): _end(1000),
    (b"PEXPIRETIME",): _end(1),
}
