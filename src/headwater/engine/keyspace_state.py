"""What the databases, streams and groups of a keyspace have in common.

They know this class, and none of them `headwater.engine.keyspace.Keyspace`, which extends it and knows them
all: imports go one way.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any, Protocol

from headwater.engine.facts import FactBuffer
from headwater.engine.nodes import Weighing
from headwater.engine.sealing import Sealing
from headwater.limits import SMALL_GARBAGE

Place = tuple[int, bytes]
"""A key: number of its database, and name."""


class IidNotes(Protocol):
    """Where producers note when their oldest iid runs out: `headwater.engine.idempotency.Deadlines`."""

    notes: list[tuple[int, int, bytes]]

    def note(self, ms: int, sid: int, pid: bytes) -> None:
        """Look at this producer of this stream then."""


class KeyspaceState:
    """Short names, facts to be written, and notes of what is to be done."""

    iid_deadlines: IidNotes

    def __init__(self, facts: FactBuffer) -> None:
        self.facts = facts
        self.sealing = Sealing()
        """What of all streams stays as it was written, and what is compressed."""
        self.weighing = Weighing()
        """What nodes take of the entry that is being added."""
        self.streams: dict[int, Any] = {}
        self.groups: dict[int, Any] = {}
        self.next_sid = 1
        self.next_gid = 1
        self.near_sid = 0
        """The stream that was expected to grow last (`Stream.expect_entry`): the processor holds it."""
        self.unseen: dict[int, dict[int, None]] = {}
        """gid → cids of consumers whose seen time is newer than its last fact."""
        self.delaying: dict[int, Any] = {}
        """Groups that have delayed entries, by gid."""
        self.due_notes: list[tuple[int, int]] = []
        """Heap of (due, gid); a note that is not its group's earliest any more is stale."""
        self.signalled: dict[Place, None] = {}
        """Keys that waiters have to look at again, in order of their first signal."""
        self.touched: dict[Place, None] = {}
        """Watched keys that were modified."""
        self.notified = 0
        """The classes of keyspace events that somebody wants, as bits (notify-keyspace-events)."""
        self.events: list[tuple[int, bytes, bytes]] = []
        """(database, event, key) of keyspace events since the node last published them."""
        self.expiring: dict[Any, None] = {}
        """The databases in which a key may have a time to end."""
        self.garbage: list[object] = []
        """What was let go and is large: streams, groups, lists, sets, hashes, and all values of a
        flushed database (a dict of those). Nothing refers to it any more but each other; whoever
        takes it apart does so in slices."""

    def note_seen(self, gid: int, cid: int) -> None:
        """A consumer was seen; its fact is still to be written."""
        self.unseen.setdefault(gid, {})[cid] = None

    def forget_seen(self, gid: int, cid: int) -> None:
        """A fact says when a consumer was seen, or it is gone."""
        cids = self.unseen.get(gid)
        if cids is not None:
            cids.pop(cid, None)
            if not cids:
                del self.unseen[gid]

    def note_due(self, due_ms: int, gid: int) -> None:
        """Remember when a group's earliest delay ends; every note but the latest is stale."""
        heappush(self.due_notes, (due_ms, gid))

    def discard(self, value: object, size: int) -> None:
        """Let go of a value of so many parts, which is unreachable but for us."""
        if size > SMALL_GARBAGE:
            self.garbage.append(value)
