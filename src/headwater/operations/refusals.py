"""Finds the reasons why a server refuses commands of workers, from INFO, CONFIG and ACL LOG.

A server may refuse any of these commands. Reasons that only the refused reply would show are not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.groups.protocol.capabilities import info_fields
from headwater.groups.protocol.operation import Operation, Refused, Word, mapping
from headwater.messages.keys import group_settings_key
from headwater.operations.replication import (
    REQUIRED,
    REQUIRES,
    ReplicationMember,
    ReplicationProblem,
    ReplicationProblemName,
    good_replicas,
    member,
)

RECENT_S = 300.0
"""Maximum age of the denials in ACL LOG that are reported, in seconds."""

_DENIALS = 128
"""Number of denials that are read: the default length of ACL LOG."""


class ServerRefusal(NamedTuple):
    """A reason why the server refuses commands."""

    code: str
    """The first word of the error that clients receive, such as ``OOM``; ``PAUSED`` if they receive none."""
    statement: str
    """The reason, with its evidence."""
    fix: Sequence[str] = ()
    """The server command that ends the refusal; empty if no single command does."""


TAKES_WRITES = "whether the server takes writes (INFO)"
"""The fact that is unknown without INFO."""


class Refusals(NamedTuple):
    """The reasons why the server refuses commands of workers."""

    found: Sequence[ServerRefusal]
    unknown: Sequence[str]
    """The facts that the server does not report to this user. Refusals for such reasons are not found."""
    replication: Sequence[ReplicationProblem] = ()
    """What is wrong with the server's replicas, or its link to a primary, besides the refusals."""
    waits: bool = False
    """True if replies or writes wait for replicas."""

    @property
    def holds_back(self) -> str:
        """The reasons why replies may wait for replicas; empty if they do not."""
        if not self.waits:
            return ""
        found = [f"{one.code}: {one.statement}" for one in self.found if one.code == "NOREPLICAS"]
        return "; ".join([*found, *(f"{one.name}: {one.statement}" for one in self.replication)])


def refusals(*streams: str) -> Operation[Refusals]:
    """Return why the server refuses commands of workers of ``streams``, and the facts that it does not report."""
    replies = yield [
        ["INFO"],
        ["CONFIG", "GET", "stop-writes-on-bgsave-error"],
        REQUIRED,
        ["ACL", "LOG", _DENIALS],
    ]
    info = info_fields(replies[0])
    here = member(info, replies[2])
    found = [
        *_unwritable(info, stops=_setting(replies[1]) == "yes"),
        *_out_of_memory(info),
        *_replication(info, here),
        *_paused(info),
    ]
    denials = [] if isinstance(replies[3], Refused) else [mapping(one) for one in replies[3]]
    found += yield from _denied(denials, streams)
    return Refusals(
        found,
        _unknown(info, replies, here),
        [one for one in here.problems if one.name is not ReplicationProblemName.TOO_FEW],
        waits=here.required.most > 0,
    )


def _unknown(info: Mapping[str, str], replies: Sequence[Any], here: ReplicationMember) -> list[str]:
    """Return the relevant facts that the server does not report, each with the command that it refuses."""
    told = [not isinstance(one, Refused) for one in replies]
    unknown = [] if told[0] else [TAKES_WRITES]
    if not told[1] and info.get("rdb_last_bgsave_status") == "err" and "journal_state" not in info:
        unknown.append("whether it refuses writes after its failed snapshot (CONFIG GET)")
    if told[0] and REQUIRES in here.unknown:
        unknown.append(REQUIRES)
    return unknown if told[3] else [*unknown, "which rights users lack (ACL LOG)"]


def _setting(reply: Any) -> str:
    """Return the value of one setting; empty if the server does not report it."""
    if isinstance(reply, Refused):
        return ""
    return next((value.decode("utf-8", "replace") for value in mapping(reply).values()), "")


def _unwritable(info: Mapping[str, str], *, stops: bool) -> list[ServerRefusal]:
    """Return the refusal of a server that cannot write to its disk."""
    if why := info.get("journal_failure"):
        return [
            ServerRefusal(
                "MISCONF", f"the journal has failed and the server must be restarted: {why}"
            )
        ]
    if why := info.get("journal_refusal"):
        return [ServerRefusal("MISCONF", f"the journal cannot be written: {why}")]
    if info.get("aof_enabled") == "1" and info.get("aof_last_write_status") == "err":
        return [
            ServerRefusal(
                "MISCONF", "the server cannot write its append-only file: its log says why"
            )
        ]
    # Headwater continues after a failed image, because its journal has the data.
    if stops and info.get("rdb_last_bgsave_status") == "err" and "journal_state" not in info:
        return [
            ServerRefusal(
                "MISCONF",
                "the last snapshot failed, and the server refuses writes until one succeeds: its log says why",
                ("BGSAVE",),
            )
        ]
    return []


def _out_of_memory(info: Mapping[str, str]) -> list[ServerRefusal]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most or used <= most or info.get("maxmemory_policy", "noeviction") != "noeviction":
        return []
    return [
        ServerRefusal(
            "OOM",
            f"the server uses {used:,} bytes, more than maxmemory ({most:,})",
            ("CONFIG", "SET", "maxmemory", str(used + used // 4)),
        )
    ]


def _replication(info: Mapping[str, str], here: ReplicationMember) -> list[ServerRefusal]:
    found = []
    if here.link is not None:
        found.append(
            ServerRefusal(
                "READONLY",
                f"the server is a replica of {here.link.primary}, which takes the writes",
            )
        )
        return found
    waits_for = info.get("promotion_waits_for_replicas")
    if waits_for is not None:
        found.append(
            ServerRefusal(
                "NOREPLICAS",
                f"the server was promoted and waits for {waits_for} replicas, which may have changes that it lacks; if none "
                "comes back, the remedy gives up what only they have",
                ("CONFIG", "SET", "synchronous-replicas", "0"),
            )
        )
        return found
    counted = info.get("min_slaves_good_slaves", str(good_replicas(here)))
    online = str(sum(one.online for one in here.replicas))
    for setting, least, there in (
        ("synchronous-replicas", here.required.synchronous_replicas, online),
        ("min-replicas-to-write", here.required.min_replicas_to_write, counted),
    ):
        if least is not None and int(there) < least:
            found.append(
                ServerRefusal(
                    "NOREPLICAS",
                    f"{there} replicas are in sync, and {setting} is {least}",
                    ("CONFIG", "SET", setting, there),
                )
            )
    return found


def _paused(info: Mapping[str, str]) -> list[ServerRefusal]:
    if info.get("paused_actions", "none") == "none":
        return []
    what = "all commands" if info["paused_actions"] == "all" else "commands that write"
    left = int(info.get("paused_timeout_milliseconds", 0))
    return [
        ServerRefusal(
            "PAUSED",
            f"clients are paused ({what}) for {left / 1000:.0f} s more",
            ("CLIENT", "UNPAUSE"),
        )
    ]


class _Denial(NamedTuple):
    """A right that a user lacks: to run a command, or to access a key."""

    user: str
    reason: str
    what: str

    def probe(self, stream: str) -> list[Word]:
        """Return a command that asks whether the user still lacks the right. A command is tried on ``stream``."""
        if self.reason == "key":
            return command_probe(self.user, "xadd", self.what)
        return command_probe(self.user, self.what, stream)

    def refusal(self, times: int, age_s: float) -> ServerRefusal:
        """Return the refusal that an operator reads: ``times`` denials, the last one ``age_s`` seconds ago."""
        kind, sign = ("key", "~") if self.reason == "key" else ("command", "+")
        often = "1 denial" if times == 1 else f"{times} denials"
        return ServerRefusal(
            "NOPERM",
            f"user {self.user} has no right to the {kind} {self.what!r}: {often}, the last one {age_s:.0f} s ago",
            ("ACL", "SETUSER", self.user, f"{sign}{self.what}"),
        )


def _denied(
    denials: Sequence[Mapping[bytes, Any]], streams: Sequence[str]
) -> Operation[list[ServerRefusal]]:
    """Return the recent denials of ``streams`` and of workers' commands, except for rights granted since then."""
    known = frozenset(streams)
    found: dict[_Denial, tuple[int, float]] = {}
    for one in denials:
        user, reason, what = (_word(one[name]) for name in (b"username", b"reason", b"object"))
        denial, age_s = _Denial(user, reason, what), float(_word(one[b"age-seconds"]))
        ours = what in known if reason == "key" else reason == "command" and what in COMMANDS
        if ours and age_s <= RECENT_S and denial not in found:
            found[denial] = int(one[b"count"]), age_s
    if not found or not streams:
        return []
    replies = yield [denial.probe(streams[0]) for denial in found]
    return [
        denial.refusal(*seen)
        for (denial, seen), reply in zip(found.items(), replies, strict=True)
        if not isinstance(reply, Refused) and denial.reason in _word(reply)
    ]


def command_probe(user: str, command: str, stream: str) -> list[Word]:
    """Return the command that asks whether ``user`` may send ``command``, one of `COMMANDS`, for a stream."""
    keys = {"KEY": stream, "SETTINGS": group_settings_key(stream, "g")}
    words = [keys.get(str(word), word) for word in COMMANDS[command]]
    return ["ACL", "DRYRUN", user, *command.split("|"), *words]


def _word(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


COMMANDS: dict[str, Sequence[Word]] = {
    "xreadgroup": ("GROUP", "g", "c", "STREAMS", "KEY", ">"),
    "xack": ("KEY", "g", "0-1"),
    "xadd": ("KEY", "*", "f", "v"),
    "xclaim": ("KEY", "g", "c", 0, "0-1"),
    "xautoclaim": ("KEY", "g", "c", 0, "0-0"),
    "xpending": ("KEY", "g"),
    "xdel": ("KEY", "0-1"),
    "xgroup|create": ("KEY", "g", "$"),
    "hmget": ("SETTINGS", "f"),
    "hsetnx": ("SETTINGS", "f", "v"),
    "hset": ("SETTINGS", "f", "v"),
    "zadd": ("SETTINGS", 0, "m"),
    "xsettle": ("KEY", "g", "c", "ACK", "IDS", 1, "0-1"),
    "xrenew": ("KEY", "g", "c", "IDS", 1, "0-1"),
    "xretire": ("KEY", "g", "c"),
    "evalsha": ("0" * 40, 0),
    "eval": ("return 0", 0),
}
"""Commands that workers send, spelled as in ACL LOG, each with arguments for ACL DRYRUN."""
