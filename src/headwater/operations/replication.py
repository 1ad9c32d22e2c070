"""The place of a server in its replication: its replicas, its primary, and what is wrong with the links between them.

INFO replication and CONFIG ──▶ ReplicationMember ──▶ problems
two Members ──▶ comparison: whether one has changes that the other lacks

Rule 1. Headwater, Redis and Valkey have the same fields of INFO. A fact that the server does not report is None, never 0.
Rule 2. A primary only knows the replicas that are connected. One that is gone shows when the server requires it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headwater.groups.protocol.capabilities import info_fields
from headwater.groups.protocol.operation import Command, Operation, Refused, mapping
from headwater.operations.times import length_of_time

LAGGING_BYTES: Final = 16 * 1024 * 1024
"""Number of bytes behind its primary from which a replica lags. Replicas acknowledge each second, so a healthy one seems
to be behind by what was written in a second."""

SILENT_S: Final = 10
"""Seconds without an acknowledgement after which a replica is silent, unless ``min-replicas-max-lag`` says another
number."""

REQUIRED: Final[Command] = (
    *("CONFIG", "GET"),
    *("synchronous-replicas", "min-replicas-to-write", "min-replicas-max-lag"),
)
"""The request for the settings that require replicas."""

REQUIRES: Final = "how many replicas it requires for a write (CONFIG GET)"
"""The fact that is unknown without the right to read these settings."""


class ServerRole(StrEnum):
    """The role of a server."""

    PRIMARY = "primary"
    REPLICA = "replica"
    EMBEDDED = "embedded"
    UNKNOWN = "unknown"


class LinkState(StrEnum):
    """The state of a replica's link to its primary."""

    UP = "up"
    DOWN = "down"
    COPYING = "copying"
    """The link is up, and the replica receives a copy of the primary's store."""


class ReplicaRow(NamedTuple):
    """One connected replica, as its primary sees it."""

    address: str
    state: str
    """The state in Redis's words: ``online``, or ``wait_bgsave`` and ``send_bulk`` for a full copy."""
    offset: int | None
    """The offset that the replica has acknowledged; None before its first acknowledgement."""
    behind_bytes: int | None
    """Number of bytes that the primary has written after that offset."""
    silent_s: int | None
    """Seconds since the last acknowledgement."""
    durable_offset: int | None
    """The offset that the replica has on disk; None if the server does not report it."""

    @property
    def online(self) -> bool:
        """True if the replica is not waiting for a full copy."""
        return self.state == "online"


class Link(NamedTuple):
    """The link of a replica to its primary."""

    primary: str
    state: LinkState
    heard_s: int | None
    """Seconds since the primary sent something; None while the link is down."""
    down_s: int | None
    """Seconds since the link went down; None if it is up, or was never up."""
    copied_bytes: int | None
    """Bytes that have arrived of a full copy; None if there is no copy under way."""
    copy_bytes: int | None
    """The size of that copy; None if it is unknown."""

    @property
    def up(self) -> bool:
        """True if the replica gets each change of its primary."""
        return self.state is LinkState.UP


class Requirement(NamedTuple):
    """The replicas that a server requires for a write; None if the server does not report it."""

    synchronous_replicas: int | None
    min_replicas_to_write: int | None
    max_lag_s: int | None

    @property
    def most(self) -> int:
        """The larger number; 0 if nothing is required, or nothing is known."""
        return max(self.synchronous_replicas or 0, self.min_replicas_to_write or 0)


class ReplicationProblemName(StrEnum):
    """The kinds of problems."""

    TOO_FEW = "too few replicas"
    FULL_COPY = "full copy"
    SILENT = "silent replica"
    LAGS = "replica lags"
    LINK_DOWN = "primary gone"
    DIVERGED = "diverged"
    TWO_PRIMARIES = "two primaries"


class ReplicationProblem(NamedTuple):
    """One thing that is wrong with the replication of a server."""

    name: ReplicationProblemName
    statement: str
    """The observation, and what ends it."""


class ReplicationMember(NamedTuple):
    """A server among its replicas and its primary."""

    role: ServerRole
    history: str
    """The id of the history of the store (``master_replid``); empty if it is unknown."""
    left_history: str
    """The id of the history that the server left last; empty if there is none."""
    left_offset: int | None
    """The offset at which it left that history."""
    offset: int | None
    link: Link | None
    """The link to the primary; None for a primary."""
    replicas: Sequence[ReplicaRow]
    required: Requirement
    problems: Sequence[ReplicationProblem] = ()
    unknown: Sequence[str] = ()
    """The facts that the server does not report to this user."""

    @property
    def healthy(self) -> bool:
        """True if nothing is wrong and nothing that would show it is unknown."""
        return not self.problems and not self.unknown


def replication() -> Operation[ReplicationMember]:
    """Return the place of the server in its replication, with what is wrong."""
    replies = yield [["INFO"], REQUIRED, ["ACL", "WHOAMI"]]
    found = member(info_fields(replies[0]), replies[1])
    # An embedded store has no users.
    return found._replace(role=ServerRole.EMBEDDED, unknown=()) if replies[2] is None else found


def member(info: Mapping[str, str], required: Any = None) -> ReplicationMember:
    """Return what INFO, and the reply to `REQUIRED`, say of a server. Without the reply, what it requires is unknown."""
    offset = _number(info.get("master_repl_offset"))
    role = {"master": ServerRole.PRIMARY, "slave": ServerRole.REPLICA}.get(
        info.get("role", ""), ServerRole.UNKNOWN
    )
    requirement = _requirement(info, required)
    unknown = [] if role is not ServerRole.UNKNOWN else ["its role and its replicas (INFO)"]
    if role is ServerRole.PRIMARY and None in requirement[:2]:
        unknown.append(REQUIRES)
    left = info.get("master_replid2", "").strip("0")
    second = _number(info.get("second_repl_offset"))
    found = ReplicationMember(
        role,
        info.get("master_replid", ""),
        info["master_replid2"] if left else "",
        second - 1 if left and second else None,
        offset,
        _link(info) if role is ServerRole.REPLICA else None,
        [*_replicas(info, offset)],
        requirement,
        unknown=unknown,
    )
    return found._replace(problems=[*_problems(found)])


def good_replicas(seen: ReplicationMember) -> int:
    """Return the number of replicas that count for ``min-replicas-to-write``."""
    lag = seen.required.max_lag_s
    return sum(
        one.online and one.silent_s is not None and (lag is None or one.silent_s <= lag)
        for one in seen.replicas
    )


def _number(text: str | None) -> int | None:
    """Return the number; None for a missing, wrong or negative one, with which servers say that they do not know."""
    return int(text) if text is not None and text.isdecimal() else None


def _requirement(info: Mapping[str, str], reply: Any) -> Requirement:
    """Return what the server requires. Redis and Valkey do not have synchronous-replicas, and INFO has
    ``min_slaves_good_slaves`` if they require replicas."""
    if reply is not None and not isinstance(reply, Refused):
        settings = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in mapping(reply).items()
        }
        synchronous = _number(settings.get("synchronous-replicas", "0"))
        least = _number(settings.get("min-replicas-to-write", "0"))
        lag = _number(settings.get("min-replicas-max-lag"))
        return Requirement(synchronous, 0 if lag == 0 else least, lag or None)
    theirs = bool(info) and "journal_state" not in info
    none = theirs and "min_slaves_good_slaves" not in info
    return Requirement(0 if theirs else None, 0 if none else None, None)


def _link(info: Mapping[str, str]) -> Link:
    host, port = info.get("master_host", "?"), info.get("master_port", "?")
    copying = info.get("master_sync_in_progress") == "1"
    up = info.get("master_link_status") == "up"
    state = LinkState.COPYING if copying else LinkState.UP if up else LinkState.DOWN
    return Link(
        f"{host}:{port}",
        state,
        _number(info.get("master_last_io_seconds_ago")),
        None if up else _number(info.get("master_link_down_since_seconds")),
        _number(info.get("master_sync_read_bytes")) if copying else None,
        (_number(info.get("master_sync_total_bytes")) or None) if copying else None,
    )


def _replicas(info: Mapping[str, str], offset: int | None) -> Iterator[ReplicaRow]:
    for number in range(_number(info.get("connected_slaves")) or 0):
        line = info.get(f"slave{number}", "")
        said = dict(part.split("=", 1) for part in line.split(",") if "=" in part)
        state = said.get("state", "unknown")
        acked = _number(said.get("offset"))
        if state != "online":  # it has acknowledged nothing, and the server says 0
            acked = None
        behind = None if acked is None or offset is None else max(0, offset - acked)
        yield ReplicaRow(
            f"{said.get('ip', '?')}:{said.get('port', '?')}",
            state,
            acked,
            behind,
            _number(said.get("lag")),
            _number(said.get("durable")),
        )


def _problems(seen: ReplicationMember) -> Iterator[ReplicationProblem]:
    if seen.link is not None:
        yield from _of_link(seen.link)
    for one in seen.replicas:
        yield from _of_replica(one, seen.required.max_lag_s or SILENT_S)
    if seen.role is not ServerRole.PRIMARY:
        return
    there = sum(one.online for one in seen.replicas)
    for name, least, count in (
        ("synchronous-replicas", seen.required.synchronous_replicas, there),
        ("min-replicas-to-write", seen.required.min_replicas_to_write, good_replicas(seen)),
    ):
        if least is not None and count < least:
            yield ReplicationProblem(
                ReplicationProblemName.TOO_FEW,
                f"{name} is {least}, and the number of replicas that follow is {count}: writes are refused until others "
                "are back. See the logs of the missing ones.",
            )


def _of_link(link: Link) -> Iterator[ReplicationProblem]:
    if link.state is LinkState.COPYING:
        copied = "" if link.copied_bytes is None else f": {link.copied_bytes:,} bytes have arrived"
        total = "" if link.copy_bytes is None else f" of {link.copy_bytes:,}"
        yield ReplicationProblem(
            ReplicationProblemName.FULL_COPY,
            f"this replica receives a full copy from {link.primary}{copied}{total}. Until it is complete, it cannot be "
            "promoted.",
        )
    elif link.state is LinkState.DOWN:
        since = "" if link.down_s is None else f" for {length_of_time(link.down_s * 1000)}"
        yield ReplicationProblem(
            ReplicationProblemName.LINK_DOWN,
            f"the link to the primary {link.primary} is down{since}. The log of this replica has the reason: the primary "
            "is gone, refuses masteruser and masterauth, or cannot be followed.",
        )


def _of_replica(one: ReplicaRow, longest_s: int) -> Iterator[ReplicationProblem]:
    if not one.online:
        verb = "receives" if one.state in {"send_bulk", "bg_transfer"} else "waits for"
        yield ReplicationProblem(
            ReplicationProblemName.FULL_COPY,
            f"replica {one.address} {verb} a full copy ({one.state}). It counts for nothing until it has it.",
        )
    elif one.silent_s is not None and one.silent_s > longest_s:
        yield ReplicationProblem(
            ReplicationProblemName.SILENT,
            f"replica {one.address} has acknowledged nothing for {length_of_time(one.silent_s * 1000)}: it hangs, or the "
            "network between the two is cut. After repl-timeout the primary disconnects it.",
        )
    elif one.behind_bytes is not None and one.behind_bytes >= LAGGING_BYTES:
        yield ReplicationProblem(
            ReplicationProblemName.LAGS,
            f"replica {one.address} is {one.behind_bytes:,} bytes behind: its disk, its processor or the network is too "
            "slow for what is written. If it is promoted, they are lost.",
        )


def comparison(one: ReplicationMember, other: ReplicationMember) -> ReplicationProblem | None:
    """Return what is wrong between two members of one group; None if nothing is.

    A member has diverged if it went on in a history after the other one had left it. Both servers say where they left
    which history, as Redis's second replication id does.
    """
    if one.role is other.role is ServerRole.PRIMARY and one.history == other.history:
        text = "both are primaries of one history: clients may write to either"
        return ReplicationProblem(ReplicationProblemName.TWO_PRIMARIES, text)
    left = other.left_offset
    if one.history != other.left_history or not one.history or left is None or one.offset is None:
        return None
    lost = one.offset - left
    if lost <= 0:
        return None
    return ReplicationProblem(
        ReplicationProblemName.DIVERGED,
        f"it has {lost:,} bytes of changes that the other one does not have: it went on after the promotion at offset "
        f"{left:,}. When it follows, it gives them up and takes a full copy; Headwater keeps them in its data directory, "
        "as diverged-…, which `headwater journal dump` reads.",
    )
