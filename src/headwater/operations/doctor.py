"""Whether a store is fit for workers: what `headwater doctor` examines besides the connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.groups.capabilities import info_fields, probe
from headwater.groups.operation import Operation, Refused, server_ms
from headwater.operations.refusals import COMMANDS, command_probe, refusals

SKEW_MS = 1_000
"""A larger difference between this machine's clock and the store's is reported."""

FULL = 0.9
"""The part of maxmemory from which memory is reported."""


class Examination(NamedTuple):
    """The result of one examination."""

    name: str
    good: bool
    text: str


def examine(stream: str, *, clock: Callable[[], int]) -> Operation[list[Examination]]:
    """Examine a store for workers of ``stream``. ``clock`` is this machine's, in Unix milliseconds."""
    able = yield from probe()
    skew_ms = yield from _skew_ms(clock)
    replies = yield [["INFO"], ["ACL", "WHOAMI"]]
    info = info_fields(replies[0])
    found = [Examination("server", good=True, text=_server(able.server, verbs=able.verbs))]
    found.append(_clock(skew_ms))
    found += _memory(info) + _durability(info)
    for one in (yield from refusals(stream)):
        found.append(Examination("writes", good=False, text=f"{one.code}: {one.statement}"))
    if replies[1] is None:  # an embedded store, which has no users
        text = "a program that opens the store itself may send everything"
        found.append(Examination("rights", good=True, text=text))
        return found
    user = "default" if isinstance(replies[1], Refused) else replies[1].decode()
    found.append((yield from _rights(user, stream, verbs=able.verbs)))
    return found


def _server(name: str, *, verbs: bool) -> str:
    how = "Headwater's commands" if verbs else "Lua scripts"
    return f"{name}; workers use {how}"


def _skew_ms(clock: Callable[[], int]) -> Operation[int]:
    """Return by how much the store's clock is ahead, at least; 0 if its time is between sending and receiving."""
    sent = clock()
    replies = yield [["TIME"]]
    found = server_ms(replies[0])
    return found - min(max(found, sent), clock())


def _clock(skew_ms: int) -> Examination:
    ahead = "ahead of" if skew_ms > 0 else "behind"
    text = f"the store's clock is {abs(skew_ms):,} ms {ahead} this machine's"
    if not skew_ms:
        text = "as this machine's"
    return Examination("clock", good=abs(skew_ms) <= SKEW_MS, text=text)


def _memory(info: Mapping[str, str]) -> list[Examination]:
    if "used_memory" not in info:
        return []
    used, most = int(info["used_memory"]), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    limit = f"of {most:,} bytes" if most else "bytes, no limit"
    found = [Examination("memory", good=not most or used < FULL * most, text=f"{used:,} {limit}")]
    if most and policy.startswith("allkeys"):
        text = f"maxmemory-policy {policy} may evict streams with their groups: use noeviction"
        found.append(Examination("eviction", good=False, text=text))
    return found


def _durability(info: Mapping[str, str]) -> list[Examination]:
    if "aof_enabled" not in info:
        return []
    written = info["aof_enabled"] == "1"
    text = "appendonly yes" if written else "appendonly no: a crash loses what no snapshot has"
    return [Examination("durability", good=written, text=text)]


def _rights(user: str, stream: str, *, verbs: bool) -> Operation[Examination]:
    """Ask for each command that workers send whether the user may."""
    own = {"xsettle", "xrenew", "xretire"}
    needed = [one for one in COMMANDS if verbs or one not in own]
    needed = [one for one in needed if not (verbs and one.startswith("eval"))]
    replies = yield [command_probe(user, one, stream) for one in needed]
    lacking = [
        one
        for one, reply in zip(needed, replies, strict=True)
        if not isinstance(reply, Refused) and reply != b"OK"
    ]
    if all(isinstance(reply, Refused) for reply in replies):
        return Examination(
            "rights", good=True, text=f"user {user} (the server does not tell its rights)"
        )
    if lacking:
        return Examination(
            "rights", good=False, text=f"user {user} may not send {', '.join(lacking)}"
        )
    return Examination("rights", good=True, text=f"user {user} may send what workers send")
