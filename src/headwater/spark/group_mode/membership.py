"""The query as a member of the group of each of its streams, with the same code as workers.

Rule. `groups.settling.session` recreates a group that vanished, as for workers: the group continues after the last
      seen entry, and the entries that are not settled are pending again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.client.redaction import redacted
from headwater.common.model import MIN_ID, StreamID, id_before
from headwater.errors import DeclarationError, HeadwaterError
from headwater.groups.membership.member import CLAIM_AFTER_FIELD, Member
from headwater.groups.protocol.capabilities import Capabilities, probe
from headwater.groups.protocol.operation import (
    Operation,
    Refused,
    batched,
    mapping,
    run,
    run_together,
    single,
)
from headwater.groups.reading.claiming import MemberReader, owned
from headwater.groups.reports.pending import known_lag
from headwater.groups.settling.session import GroupSession
from headwater.groups.settling.settling import How, Settlement, renew, settle
from headwater.messages.keys import dead_letter_stream, group_settings_key
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.store import SourceStore
from headwater.spark.group_mode.offsets import Portion

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
Counted = Callable[[], Sequence[tuple[bytes, int]]]


def nothing() -> Sequence[tuple[bytes, int]]:
    """Return no entries, because all fetched entries are settled."""
    return ()


_log = logging.getLogger("headwater.spark")

CLAIM_AFTER_MS: Final = 30_000
"""Idle time for claims, in ms, if neither the option nor the group sets one. Workers have the same default."""

CHUNK: Final = 1_000
"""Maximum number of settlements in one step, which takes the server a few milliseconds of Lua."""

_NEEDED: Final = (
    "+@stream +@hash +@sortedset +@string +@scripting +@transaction +@keyspace -@dangerous "
    "+time +info +command"
)
"""Permissions that ACL rules must grant. Headwater itself requires neither +@scripting nor +time."""

_TOGETHER: Final = 500
"""Maximum number of streams whose lags one request returns."""

_SCAN_SECONDS: Final = 1.0
"""Minimum time between two searches for a pattern's streams. An idle query is polled ten times a second."""


class Membership:
    """Uses the store as a member of groups. Not thread-safe."""

    def __init__(self, options: SourceOptions, store: SourceStore) -> None:
        assert options.group is not None, "group mode has a group"
        self.options = options
        self.group = options.group.name
        self.consumer = options.group.consumer
        self.max_deliveries = options.group.max_deliveries
        self._store = store
        self._able: Capabilities | None = None
        self._claim_after_ms = options.group.min_idle_ms
        self._members: dict[str, Member] = {}
        self._sessions: dict[str, GroupSession] = {}
        self._readers: dict[str, MemberReader] = {}
        self._unsettled: dict[str, Counted] = {}
        self._found: list[str] = []
        self._look_at = 0.0

    @property
    def client(self) -> redis.Redis:
        return self._store.client

    # --- streams ----------------------------------------------------------------------------------

    def streams(self) -> list[str]:
        """Return the streams that the options match now; a pattern excludes dead-letter streams."""
        if self.options.pattern is None:
            return list(self.options.streams)
        if time.monotonic() >= self._look_at:
            found = self._store.streams()
            dead = {self.dead_letters(stream) for stream in found}
            self._found = [stream for stream in found if stream not in dead]
            self._look_at = time.monotonic() + _SCAN_SECONDS
        return self._found

    def dead_letters(self, stream: str) -> str:
        """Return the name of the dead-letter stream of ``stream``, by default the one that workers use."""
        return self.options.dead_letter_stream or dead_letter_stream(stream)

    def joined(self, stream: str) -> bool:
        return stream in self._sessions

    def join(self, stream: str, *, seen: StreamID | None, begin: bool) -> None:
        """Create the group if it is missing, and agree on settings with its members.

        A new group begins after ``seen``. If ``seen`` is None, it begins at the options' start if ``begin`` is
        true, else at the first entry (for a stream found later). An existing group keeps its position.
        """
        member = self.member(stream)
        self._unsettled[stream] = nothing
        session = GroupSession(member, unsettled=partial(self._unsettled_of, stream))
        position: StreamID | str = self._starting(stream) if begin else MIN_ID
        try:
            if seen is not None:
                session.seen = str(seen).encode()
                run(self.client, session.surviving(_look))
            run(self.client, session.join(position=position))
        except Refused as error:
            if error.code == "WRONGTYPE":
                kind = self._store.ask("TYPE", stream)
                raise DeclarationError(
                    f"stream: the key {stream!r} holds a {kind.decode()}, not a stream"
                ) from None
            raise
        self._sessions[stream] = session
        self._readers[stream] = self._reader(member)

    def _unsettled_of(self, stream: str) -> Sequence[tuple[bytes, int]]:
        return self._unsettled[stream]()

    def member(self, stream: str) -> Member:
        """Return this query's identity in the group of ``stream``."""
        if stream not in self._members:
            if self._able is None:
                self._able = run(self.client, probe())
            self._members[stream] = Member(
                stream, self.group, self.consumer, self.claim_after_ms(stream), self._able
            )
        return self._members[stream]

    def reader(self, stream: str) -> MemberReader:
        return self._readers[stream]

    def restart_passes(self) -> None:
        """Begin the passes over all pending lists again."""
        self._readers = {stream: self._reader(self._members[stream]) for stream in self._readers}

    def _reader(self, member: Member) -> MemberReader:
        def gone(ids: Sequence[bytes]) -> None:
            _log.warning(
                "%d entries of stream %r that group %s had pending were deleted or trimmed before "
                "they were settled: %s …",
                len(ids),
                member.stream,
                member.group,
                ids[0].decode(),
            )

        return MemberReader(member, gone=gone)

    def claim_after_ms(self, stream: str) -> int:
        """Return ``minIdleTime`` or, if it is not set, the idle time on which the stream's group has agreed."""
        if self._claim_after_ms is not None:
            return self._claim_after_ms
        key = group_settings_key(stream, self.group)
        found = run(self.client, single("HGET", key, CLAIM_AFTER_FIELD))
        return CLAIM_AFTER_MS if found is None else int(found)

    def _starting(self, stream: str) -> StreamID | str:
        start = self.options.start_of(stream)
        if isinstance(start, StreamID):
            return StreamID(*id_before(*start)) if start > MIN_ID else MIN_ID
        return "$" if start == "latest" else MIN_ID

    # --- operations -------------------------------------------------------------------------------

    def do(self, stream: str, make: Callable[[Member], Operation[T]], *, unsettled: Counted) -> T:
        """Run an operation; if the group has vanished, recreate it and run the operation again.

        ``unsettled`` must return the fetched, unsettled entries of ``stream`` with their delivery counts.
        """
        if not self.joined(stream):
            return run(self.client, make(self.member(stream)))
        self._unsettled[stream] = unsettled
        return run(self.client, self._sessions[stream].surviving(make))

    def do_together(
        self,
        streams: Sequence[str],
        make: Callable[[str], Callable[[Member], Operation[T]]],
        *,
        unsettled: Callable[[str], Counted],
    ) -> list[T]:
        """Run `do` for many joined streams, in as few requests as for one. All streams must be joined."""
        for stream in streams:
            self._unsettled[stream] = unsettled(stream)
        return run_together(
            self.client, [self._sessions[stream].surviving(make(stream)) for stream in streams]
        )

    def note_seen(self, stream: str, id_: StreamID) -> None:
        """Record that ``id_`` was delivered as a new entry."""
        self._sessions[stream].seen = str(max(id_, self.seen(stream) or MIN_ID)).encode()

    def seen(self, stream: str) -> StreamID | None:
        """Return the greatest id that was ever delivered as a new entry; None if it is unknown."""
        session = self._sessions.get(stream)
        return None if session is None or session.seen is None else StreamID.parse(session.seen)

    def owned_of(self, stream: str, portion: Portion) -> list[bytes]:
        """Return the single ids of another process's ``portion``, and the ids in its runs that this query owns."""
        ids = [str(id_).encode() for id_ in portion.singles]
        for part in portion.runs:
            start, end = str(part.first).encode(), str(part.last).encode()
            rows = self.do(
                stream,
                lambda member: owned(member, start=start, end=end),  # noqa: B023 - run now
                unsettled=nothing,
            )
            ids += [row[0] for row in rows]
        return ids

    def renew(
        self, stream: str, ids: Sequence[bytes], *, unsettled: Counted = nothing
    ) -> list[bytes]:
        """Renew the leases of ``ids``; return those that this query still owns."""
        flags = self.do(stream, lambda member: renew(member, ids), unsettled=unsettled)
        return [one for one, mine in zip(ids, flags, strict=True) if mine]

    def lags(self, streams: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the position and lag of each stream's group. ``lag`` is None if the server does not know it."""
        found: dict[str, dict[str, Any]] = {}
        for names in batched(streams, _TOGETHER):
            replies = self._store.ask_all((b"XINFO", "GROUPS", stream) for stream in names)
            found |= {
                stream: self._lag(reply) for stream, reply in zip(names, replies, strict=True)
            }
        return found

    def _lag(self, reply: Any) -> dict[str, Any]:
        for group in [] if isinstance(reply, Exception) else map(mapping, reply):
            if group[b"name"].decode("utf-8", "replace") == self.group:
                return {
                    "delivered": group[b"last-delivered-id"].decode(),
                    "lag": known_lag(group),
                    "pending": group[b"pending"],
                }
        return {}

    def settle(self, stream: str, ids: Sequence[bytes]) -> int:
        """Acknowledge those of ``ids`` that this query owns; return their number."""
        done = 0
        session = self._sessions.get(stream)
        for first in range(0, len(ids), CHUNK):
            part = [Settlement(one, How.ACK) for one in ids[first : first + CHUNK]]
            outcomes = self.do(
                stream,
                lambda member: settle(member, part) if session is None else session.settle(part),  # noqa: B023 - run now
                unsettled=nothing,
            )
            done += sum(outcome.done for outcome in outcomes)
        return done


def _look(member: Member) -> Operation[Any]:
    """Read the pending summary, which fails if the group vanished while no query ran."""
    return single("XPENDING", member.stream, member.group)


@contextmanager
def naming_store(options: SourceOptions) -> Iterator[None]:
    """Raise error replies with the store's url and, for NOPERM, with the permissions needed."""
    try:
        yield
    except Refused as error:
        hint = ""
        if error.code == "NOPERM" or "no permissions" in str(error):
            stream = options.streams[0] if options.streams else str(options.pattern).rstrip("*")
            hint = (
                f". Group mode needs {_NEEDED}, on ~{stream}* and Headwater's keys for it, "
                f"~{{{stream}}}*"
            )
        raise HeadwaterError(f"{redacted(options.url)} answered: {error}{hint}") from error
