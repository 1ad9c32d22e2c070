"""Examines whether a store is fit for workers, for `headwater doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.groups.protocol.capabilities import info_fields, probe
from headwater.groups.protocol.operation import Operation, Refused, server_ms
from headwater.operations.records import who
from headwater.operations.refusals import COMMANDS, Refusals, command_probe, refusals
from headwater.operations.replication import ReplicationMember, replication

SKEW_MS = 1_000
"""Maximum difference between this machine's clock and the store's that counts as good, in milliseconds."""

FULL = 0.9
"""Fraction of maxmemory in use at which memory no longer counts as good."""


class Examination(NamedTuple):
    """The result of one examination."""

    name: str
    good: bool | None
    """True if the store is fit in this respect; None if the server does not report this to the user."""
    text: str


def examine(stream: str, *, clock: Callable[[], int]) -> Operation[list[Examination]]:
    """Examine a store for workers of ``stream``. ``clock`` is this machine's, in Unix milliseconds.

    A fact that the server does not report counts as unknown. Raises `HeadwaterError` if the server is too old.
    """
    able = yield from probe()
    examined = [(yield from _clock(clock))]
    replies = yield [["INFO"], ["ACL", "WHOAMI"]]
    info, embedded = info_fields(replies[0]), replies[1] is None
    how = "workers use Headwater's commands" if able.verbs else "workers use Lua scripts"
    if info:
        found = [Examination("server", True, f"{able.server}; {how}"), *examined]
        found += _memory(info) + _durability(info)
    else:
        found = [Examination("server", None, f"the server does not say its version (INFO); {how}")]
        found += examined
        found += [Examination(one, None, _NOT_TOLD) for one in ("memory", "durability")]
    found += _writes((yield from refusals(stream)))
    if not embedded:
        found.append(_replication((yield from replication())))
    if embedded:  # an embedded store has no users
        text = "a program that opens the store itself may send everything"
        found.append(Examination("rights", True, text))
    else:
        found.append((yield from _rights((yield from who()), stream, verbs=able.verbs)))
    return found


_NOT_TOLD = "the server does not report this to the user (INFO)"


def _clock(clock: Callable[[], int]) -> Operation[Examination]:
    """Compare the store's clock with this machine's. The difference is the smallest possible one: 0 if the store's
    time lies between sending the command and receiving the reply."""
    sent = clock()
    replies = yield [["TIME"]]
    if isinstance(replies[0], Refused):
        return Examination("clock", None, "the server does not report this to the user (TIME)")
    found = server_ms(replies[0])
    skew_ms = found - min(max(found, sent), clock())
    ahead = "ahead of" if skew_ms > 0 else "behind"
    text = f"the store's clock is {abs(skew_ms):,} ms {ahead} this machine's"
    return Examination(
        "clock",
        abs(skew_ms) <= SKEW_MS,
        text if skew_ms else "the store's clock agrees with this machine's",
    )


def _memory(info: Mapping[str, str]) -> list[Examination]:
    if "used_memory" not in info:
        return []
    used, most = int(info["used_memory"]), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    limit = f"of {most:,} bytes" if most else "bytes, no limit"
    found = [Examination("memory", not most or used < FULL * most, f"{used:,} {limit}")]
    if most and policy.startswith("allkeys"):
        text = f"maxmemory-policy {policy} may evict streams with their groups: use noeviction"
        found.append(Examination("eviction", False, text))
    return found


def _durability(info: Mapping[str, str]) -> list[Examination]:
    if "aof_enabled" not in info:
        return []
    written = info["aof_enabled"] == "1"
    text = "appendonly yes" if written else "appendonly no: a crash loses what no snapshot has"
    return [Examination("durability", written, text)]


def _writes(refused: Refusals) -> list[Examination]:
    """Return the examination of whether the server accepts writes."""
    found = [Examination("writes", False, f"{one.code}: {one.statement}") for one in refused.found]
    if refused.unknown:
        found.append(
            Examination("writes", None, f"the server does not report {'; '.join(refused.unknown)}")
        )
    return found or [Examination("writes", True, "nothing shows that the server refuses any")]


def _replication(seen: ReplicationMember) -> Examination:
    """Return the examination of the server's replicas, or of its link to a primary."""
    texts = [f"{one.name}: {one.statement}" for one in seen.problems]
    if seen.unknown:
        texts.append(f"the server does not report {'; '.join(seen.unknown)}")
    if texts:
        return Examination("replication", False if seen.problems else None, " ".join(texts))
    if seen.link is not None:
        return Examination("replication", True, f"a replica of {seen.link.primary} that follows it")
    count = len(seen.replicas)
    many = (
        "no replica"
        if not count
        else "1 replica follows"
        if count == 1
        else f"{count} replicas follow"
    )
    return Examination("replication", True, many)


def _rights(user: str, stream: str, *, verbs: bool) -> Operation[Examination]:
    """Ask the server whether the user may send each command that workers send."""
    own = {"xsettle", "xrenew", "xretire"}
    needed = [one for one in COMMANDS if verbs or one not in own]
    needed = [one for one in needed if not (verbs and one.startswith(("eval", "zadd")))]
    replies = yield [command_probe(user, one, stream) for one in needed]
    asked = list(zip(needed, replies, strict=True))
    lacking = [one for one, reply in asked if not isinstance(reply, Refused) and reply != b"OK"]
    unknown = [one for one, reply in asked if isinstance(reply, Refused)]
    text = f"user {user} may not send {', '.join(lacking)}" if lacking else f"user {user}"
    if unknown:
        whether = "what workers send" if len(unknown) == len(needed) else ", ".join(unknown)
        text += f"{'; and' if lacking else ':'} the server does not say whether it may send {whether} (ACL DRYRUN)"
    if lacking or unknown:
        return Examination("rights", False if lacking else None, text)
    return Examination("rights", True, f"{text} may send what workers send")
