"""The part of a keyspace that databases, streams and groups use.

They import this class and not `headwater.engine.keyspace.keyspace.Keyspace`, which extends it and imports them all.
This avoids an import cycle.
"""

from __future__ import annotations

from heapq import heapify, heappush
from typing import Any, Protocol

from headwater.engine.accounts.memory_account import MemoryAccount
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.redis_nodes.nodes import Weighing
from headwater.engine.tier.sealing import Sealing
from headwater.engine.tier.storing import UnreadBlob

_STALE_NOTES = 64

Place = tuple[int, bytes]
"""A key: the number of its database, and its name."""


class IidNotes(Protocol):
    """The interface of `headwater.engine.streams.idempotency.Deadlines` that producers use."""

    notes: list[tuple[int, int, bytes]]

    def note(self, ms: int, sid: int, pid: bytes) -> None:
        """Add a note for this producer of this stream."""


class KeyspaceState:
    """Streams and groups by number, the facts to be written, and notes of due times."""

    iid_deadlines: IidNotes

    def __init__(self, facts: FactBuffer) -> None:
        self.facts = facts
        self.sealing = Sealing()
        """Decides which blocks of all streams stay uncompressed and which are compressed."""
        self.unread_blobs: list[UnreadBlob] = []
        """Blobs that a recovery could not read; after the recovery, only the ones whose entries still exist."""
        self.named_segments: set[int] = set()
        """The segments that the replayed journal names."""
        self.memory = MemoryAccount()
        """Account of the memory of everything but entries."""
        self.weighing = Weighing(self.memory)
        """The node weights of the entry that is being added."""
        self.streams: dict[int, Any] = {}
        self.groups: dict[int, Any] = {}
        self.next_sid = 1
        self.next_gid = 1
        self.near_sid = 0
        """Number of the stream that was prefetched last (`StoredStream.expect_entry`)."""
        self.unseen: dict[int, dict[int, None]] = {}
        """gid → cids of consumers whose seen time is newer than in their last fact."""
        self.delaying: dict[int, Any] = {}
        """Groups that have delayed entries, by gid."""
        self.due_notes: list[tuple[int, int]] = []
        """Heap of (due, gid). A note that is not the earliest due time of its group is stale."""
        self.signalled: dict[Place, None] = {}
        """Keys whose waiting clients must be checked again, in order of the first signal."""
        self.touched: dict[Place, None] = {}
        """Watched keys that were modified."""
        self.notified = 0
        """The classes of keyspace events that are published, as bits (notify-keyspace-events)."""
        self.events: list[tuple[int, bytes, bytes]] = []
        """(database, event, key) of keyspace events since the node last published them."""
        self.expiring: dict[Any, None] = {}
        """The databases in which a key may have an expiry."""
        self.garbage: list[object] = []
        """Large values that were deleted: streams, groups, lists, sets, hashes, and the values of flushed
        databases (a dict each). Only other garbage refers to them. `garbage.free` frees them in slices."""

    def note_seen(self, gid: int, cid: int) -> None:
        """Remember that a consumer's seen time has changed and its fact is not yet written."""
        self.unseen.setdefault(gid, {})[cid] = None

    def forget_seen(self, gid: int, cid: int) -> None:
        """Undo `note_seen`: the fact was written, or the consumer was deleted."""
        cids = self.unseen.get(gid)
        if cids is not None:
            cids.pop(cid, None)
            if not cids:
                del self.unseen[gid]

    def note_due(self, due_ms: int, gid: int) -> None:
        """Remember the earliest due time of a group in ``delaying``. Earlier notes of the group become stale.
        They are removed once they may outnumber the valid ones."""
        heappush(self.due_notes, (due_ms, gid))
        if len(self.due_notes) > 2 * len(self.delaying) + _STALE_NOTES:
            self.due_notes = [(one.next_due(), gid) for gid, one in self.delaying.items()]
            heapify(self.due_notes)

    def discard(self, value: object, size: int) -> None:
        """Discard an unreachable value (`headwater.engine.keyspace.keyspace.Keyspace`)."""
        raise NotImplementedError
