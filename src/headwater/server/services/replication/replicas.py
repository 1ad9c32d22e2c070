"""The replicas of a primary, and what is sent to them.

    behind   a thread reads journal files, or a copy of the store, and passes pieces on as the replica takes them
    live     each turn's groups go from its buffer into the replica's output, after they are in the journal

Rule 1. A replica that is live and has `AHEAD_BYTES` unsent is behind again: it continues from the journal files, so a slow
        replica takes no more memory than that.
Rule 2. From behind to live, and back, only between two turns, under the node's lock: no group is left out or sent twice.
Rule 3. Nothing is removed from the directory while a copy of it is sent. Journal files that an image has replaced are
        kept while there are replicas, which may be behind or come back: ``repl-backlog-size`` of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from headwater.commands.call import Wait
from headwater.common.threads import NO_THREAD, started
from headwater.config.replication import ReplicationConfig
from headwater.errors import HeadwaterError
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.journal.format.manifest import StoreHistory
from headwater.journal.format.names import file_name, image_name
from headwater.journal.images.catalog import NOTHING_NEEDED
from headwater.journal.log.journal import Journal
from headwater.journal.log.tail import JournalTail, NoSuchOffset
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.server.services.records import TurnRecords
from headwater.server.services.replication.link import (
    PART_BYTES,
    Continuation,
    copy_ends,
    counted_groups,
    file_begins,
    file_part,
    history_begins,
    sign_of_life,
)
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")

AHEAD_BYTES = 1024 * 1024
"""Maximum number of unsent bytes of a replica, beyond one piece."""
_ROOM_S = 1.0
"""Interval, in seconds, at which a thread looks whether its replica is gone."""


class Replica:
    """One connected replica, from its first REPLCONF on. Times are monotonic, in seconds."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.port = 0
        self.syncing = False
        """True after HWSYNC."""
        self.may_lack = False
        """True if it says that it may lack what it answered as a primary."""
        self.live = False
        self.copying = False
        self.acked = -1
        """The offset up to which the replica has applied everything; -1 before its first acknowledgement."""
        self.durable = -1
        """The offset up to which the replica has everything on disk."""
        self.heard = now
        """Time of the last acknowledgement, or of the connection."""
        self.address = session.client.address.rpartition(":")[0].strip("[]")
        """The address at which the replica is, unless it announces another one."""
        self.tail: JournalTail | None = None
        self.room = threading.Event()
        """Set when the replica has taken enough of what was sent."""

    @property
    def state(self) -> str:
        """The state in Redis's words."""
        if not self.syncing:
            return "wait_bgsave"
        return "send_bulk" if self.copying else "online"


class ConnectedReplicas:
    """The replicas of a node, by session."""

    def __init__(self, records: TurnRecords, times: TurnClock, lock: threading.RLock) -> None:
        self.by_session: dict[Session, Replica] = {}
        self._live: list[Replica] = []
        self._inside: set[int] = set()
        """Offsets that replicas have named and that are inside a record: such a replica needs a copy."""
        self._records = records
        self._times = times
        self._lock = lock
        self._alive_at = self._seen_at = 0.0
        self.keeps = False
        """True if journal files are kept for replicas."""
        self.waiting: dict[Session, tuple[Wait, int]] = {}
        """Clients that wait for acknowledgements (WAIT, WAITAOF), with their wait, and the offset that replicas must have."""
        self.wanted = False
        """True if replicas are to acknowledge each turn."""

    # --- connecting -----------------------------------------------------------------------------

    def of(self, session: Session) -> Replica:
        """Return the replica of a session, which becomes one."""
        found = self.by_session.get(session)
        if found is None:
            found = self.by_session[session] = Replica(session, self._times.monotonic())
        return found

    def forget(self, session: Session) -> None:
        """Forget a session that is closed."""
        self.waiting.pop(session, None)
        replica = self.by_session.pop(session, None)
        if replica is not None:
            self._leave(replica)
            replica.room.set()

    def announce(self, state: Continuation) -> None:
        """Tell the live replicas that they are in the history of ``state`` now."""
        self.pass_on(bytes(history_begins(state, self._records.turn, self._times.now())))

    def disconnect(self, besides: Session | None = None, *, live: bool = False) -> None:
        """Close the links to the replicas that are not live, and with ``live`` to all, but ``besides``. They connect again."""
        for session, replica in list(self.by_session.items()):
            if session is besides or (replica.live and not live):
                continue
            self._leave(replica)
            session.closing = True
            session.tell()

    def begin(
        self, session: Session, journal: Journal, own: StoreHistory, history: str, offset: int
    ) -> None:
        """Answer HWSYNC: continue from ``offset`` of ``history``, or send a copy. ``own`` is the history of this node."""
        replica = self.of(session)
        known = own.includes(history, offset, journal.offset) and offset not in self._inside
        self._inside.discard(offset)
        tail = journal.tail(offset) if known else None
        replica.syncing, replica.copying, replica.tail = True, tail is None, tail
        replica.heard = self._times.monotonic()
        if tail is None:
            # The thread writes the line, because it names the state of the copy.
            pieces = self._copy(replica, journal, own)
        else:
            line = Continuation(False, journal.seed, own, offset).line()
            session.output.reply.raw(line)
            pieces = iter(())
        self._begin_thread(replica, journal, pieces)

    def _begin_thread(
        self, replica: Replica, journal: Journal, pieces: Iterator[bytes | bytearray]
    ) -> None:
        thread = threading.Thread(
            target=self._send, args=(replica, journal, pieces), name="replica", daemon=True
        )
        if not started(thread):
            log.error("replica %s is not served: %s", replica.session.client.address, NO_THREAD)
            replica.session.closing = True

    def count_good(self, max_lag_s: int) -> int:
        """Return the number of replicas from which something was heard in the last ``max_lag_s`` seconds."""
        least = self._times.monotonic() - max_lag_s
        return sum(one.acked >= 0 and one.heard >= least for one in self.by_session.values())

    def confirmed(self, required: int, *, durable: bool) -> int:
        """Return the offset up to which ``required`` live replicas have everything, in memory or on disk; -1 without so many."""
        reached = sorted(
            (one.durable if durable else one.acked for one in self._live), reverse=True
        )
        return reached[required - 1] if len(reached) >= required else -1

    def count_complete(self, offset: int) -> int:
        """Return the number of live replicas that have everything up to ``offset`` and have lost nothing in a crash."""
        return sum(one.acked >= offset and not one.may_lack for one in self._live)

    @property
    def live_count(self) -> int:
        """Number of replicas that get each turn."""
        return len(self._live)

    def count(self, offset: int, *, durable: bool) -> int:
        """Return the number of replicas that have everything up to ``offset``, in memory or on disk."""
        each = self.by_session.values()
        return sum((one.durable if durable else one.acked) >= offset for one in each)

    def ask(self) -> None:
        """Ask the replicas to acknowledge each turn from now on, beginning with this one."""
        journal = self._records.journal
        if not self.wanted:
            self.wanted = True
            if journal is not None:
                self.pass_on(bytes(self._alive(journal)))

    def acknowledged(self, session: Session, offset: int, durable: int) -> None:
        """Record that a replica has everything up to ``offset``, and on disk up to ``durable`` (-1: unknown)."""
        replica = self.by_session[session]
        replica.acked = max(replica.acked, offset)
        replica.durable = max(replica.durable, durable)
        replica.heard = self._times.monotonic()
        replica.room.set()

    # --- live -----------------------------------------------------------------------------------

    def _copied(self, buffer: bytearray) -> Callable[[], None]:
        """Copy the groups of a turn. Return the function that sends them to the live replicas."""
        groups = counted_groups(buffer)
        return lambda: self.pass_on(groups)

    def pass_on(self, groups: bytes) -> None:
        """Send a turn's groups to the live replicas."""
        for replica in list(self._live):
            self._write(replica, groups)
            if replica.session.output.unsent > AHEAD_BYTES:
                self._fall_behind(replica)

    def _leave(self, replica: Replica) -> None:
        if replica.live:
            replica.live = False
            self._live.remove(replica)
            if not self._live:
                self._records.pass_on = None

    def _fall_behind(self, replica: Replica) -> None:
        """Continue from the journal files (rule 1)."""
        self._leave(replica)
        journal = self._records.journal
        assert journal is not None
        replica.tail = journal.tail(journal.offset)
        self._begin_thread(replica, journal, iter(()))

    def look_after(self, config: ReplicationConfig) -> None:
        """Send a sign of life if one is due, and disconnect the replicas that are silent. Called each second, within the
        node's lock and before a turn."""
        self._keep_files(config)
        journal, now = self._records.journal, self._times.monotonic()
        for session, replica in list(self.by_session.items()):
            if (
                replica.syncing
                and not replica.copying
                and now - replica.heard > config.repl_timeout
            ):
                log.warning("replica %s is disconnected: it is silent", session.client.address)
                session.closing = True
                session.tell()
        if self.wanted and not self.waiting and not config.synchronous_replicas:
            self.wanted, self._alive_at = False, 0.0
        if journal is not None and now - self._alive_at >= config.repl_ping_replica_period:
            self._alive_at = now
            self.pass_on(bytes(self._alive(journal)))

    def _alive(self, journal: Journal) -> bytearray:
        now_ms, turn = self._times.now(), self._records.turn
        return sign_of_life(
            journal.offset, wanted=self.wanted, turn=turn, now_ms=now_ms, seed=journal.seed
        )

    # --- behind: the thread of one replica ------------------------------------------------------

    def _send(
        self, replica: Replica, journal: Journal, pieces: Iterator[bytes | bytearray]
    ) -> None:
        """Send ``pieces``, then what the journal has from the replica's position on, until it is live."""
        session = replica.session
        try:
            for piece in pieces:
                if not self._put(replica, piece):
                    return
            replica.copying = False
            while self._put(replica, b"") and not self._try_live(replica, journal):
                with self._lock:
                    end, reached = journal.end(), dict(journal.catalog.reached)
                assert replica.tail is not None
                if not self._put(replica, replica.tail.read(end, reached)):
                    return
        except NoSuchOffset:
            assert replica.tail is not None
            self._inside.add(replica.tail.wanted)
            log.warning(
                "replica %s named offset %d, which is inside a record: it needs a copy",
                session.client.address,
                replica.tail.wanted,
            )
        except (OSError, HeadwaterError) as error:
            log.error("replica %s is not served: %s", session.client.address, error)  # noqa: TRY400  # not of the program
        except Exception:
            log.exception("replica %s is not served", session.client.address)
        else:
            return
        with self._lock:
            session.closing = True
            session.tell()

    def _try_live(self, replica: Replica, journal: Journal) -> bool:
        """Make a replica live if it has everything. Return whether it is live, or gone."""
        with self._lock:
            if replica.session.closed or replica.session.closing:
                return True
            assert replica.tail is not None
            if not replica.tail.ended(journal.end()):
                return False
            self._make_live(replica, journal)
            return True

    def _make_live(self, replica: Replica, journal: Journal) -> None:
        replica.tail, replica.live = None, True
        self._live.append(replica)
        self._records.pass_on = self._copied
        self._write(replica, self._alive(journal))

    def _put(self, replica: Replica, piece: bytes | bytearray) -> bool:
        """Send a piece, which may be empty, when the replica has room for more. Return False if it is gone."""
        session = replica.session
        while True:
            with self._lock:
                if session.closed or session.closing:
                    return False
                replica.room.clear()
                if session.output.unsent <= AHEAD_BYTES:
                    self._write(replica, piece)
                    return True
                session.output.stalled = True
            replica.room.wait(_ROOM_S)

    @staticmethod
    def _write(replica: Replica, piece: bytes | bytearray) -> None:
        """Send what is in the journal, without waiting for the end of a turn."""
        output = replica.session.output
        output.outbox += piece
        output.release()
        replica.session.tell()

    # --- copies and journal files ---------------------------------------------------------------

    def _copy(
        self, replica: Replica, journal: Journal, history: StoreHistory
    ) -> Iterator[bytes | bytearray]:
        """Yield a copy of the store as it is now (rule 3): the files, then MANIFEST."""
        files, seed = journal.files, journal.seed
        with held_for_backup(files.path(BACKUP_LOCK_NAME)):
            with self._lock:
                rotation = journal.rotate()
                self._records.count_again()
                catalog = journal.catalog
                manifest, closed, offset = catalog.manifest, list(catalog.closed), journal.offset
                replica.tail = journal.tail(offset)
            assert manifest is not None, "a store has one from its first start on"
            manifest = manifest._replace(
                last=rotation.first - 1, floor=catalog.floor, history=history.followed()
            )
            sizes = {file_name(end.number): end.offset for end in closed}
            named = [segment_name(number) for number in segment_numbers(files)]
            if manifest.image is not None:
                named.append(image_name(manifest.image.number))
            sizes.update({name: files.reads.size(name) for name in named})
            yield Continuation(True, seed, history, offset).line()
            for name, size in sizes.items():
                yield file_begins(name, size, seed)
                for at in range(0, size, PART_BYTES):
                    data = files.reads.at(name, at, min(PART_BYTES, size - at))
                    yield file_part(data, seed)
            yield copy_ends(manifest.text(), seed)

    def _keep_files(self, config: ReplicationConfig) -> None:
        """Keep the last ``repl-backlog-size`` bytes of journal files while there are replicas, and for ``repl-backlog-ttl``
        after that."""
        journal, now = self._records.journal, self._times.monotonic()
        if journal is None:
            return
        followed = any(one.syncing for one in self.by_session.values())
        if followed:
            self._seen_at = now
        ttl = config.repl_backlog_ttl
        self.keeps = followed or (self.keeps and (not ttl or now - self._seen_at < ttl))
        least = journal.offset - config.repl_backlog_size
        kept = [number for number, end in dict(journal.catalog.reached).items() if end > least]
        journal.catalog.follower_needs = (
            min(kept, default=NOTHING_NEEDED) if self.keeps else NOTHING_NEEDED
        )
