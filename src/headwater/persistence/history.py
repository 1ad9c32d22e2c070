"""The history of one entry, from a store's image and journal.

    image ──▶ state ──▶ a record group ──▶ state ──▶ a record group ──▶ …
                 └────── compared: events ──┘

Rule 1. The history is derived from a replay of the store: after each record group, the entry's state is compared
        with its state before. So the journal needs no facts for it, and the history cannot differ from the actual
        changes.
Rule 2. The history begins with the oldest kept image (``journal-retention``), if any: earlier changes are gone
        with the journal files before it. The last image before the time of the entry's id is tried first. This
        avoids reading changes that cannot concern the entry, and is enough if the entry is added after the image.
Rule 3. A server may use the directory: it removes no file meanwhile, as during a backup. The last changes of the
        server may be missing.
Rule 4. While the entry cannot exist, whole batches are replayed without comparing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import text_of
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOBODY, NOWHERE
from headwater.engine.streams.stream import StoredStream
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.failures import reading
from headwater.journal.format.manifest import StoreManifest
from headwater.journal.images.retention import oldest_past, past_before
from headwater.persistence.applying import Applying
from headwater.persistence.reading import Progress, StoreReader, silent

_ID = Struct("<QQ")

_APPENDED, _TRIMMED, _CONSUMER_DELETED, _DELIVERED = 0x20, 0x21, 0x34, 0x40
"""Kinds of facts (`headwater.engine.facts.facts`)."""


class What(StrEnum):
    """Kinds of events of the entry, or of its delivery in a group."""

    THERE = "there"
    """The history begins: the stream has the entry."""
    ADDED = "added"
    DELETED = "deleted"
    TRIMMED = "trimmed"
    KEY_GONE = "stream gone"
    """The stream was deleted, renamed or replaced."""
    PENDING = "pending"
    """The history begins: the entry is pending."""
    DELIVERED = "delivered"
    CLAIMED = "claimed"
    """Claimed by another consumer, or delivered again to its owner."""
    RENEWED = "renewed"
    """Renewed by its owner: its idle time began again."""
    RELEASED = "released"
    """The entry was handed back: it has no owner, and can be claimed."""
    DELAYED = "delayed"
    """The entry has no owner, and can be claimed from its due time on."""
    DUE = "due"
    ACKNOWLEDGED = "acknowledged"
    DEAD_LETTERED = "dead-lettered"
    """Acknowledged in the same step that added its dead letter."""
    DROPPED = "dropped"
    """The delivery was deleted with its consumer (XGROUP DELCONSUMER)."""
    READ = "read without acknowledging"
    """Delivered by XREADGROUP NOACK: it was never pending."""
    SKIPPED = "skipped"
    """The group was created at, or set to, a position at or after the entry, so it does not get the entry."""
    GROUP_GONE = "group gone"
    """The group was destroyed."""


class EntryEvent(NamedTuple):
    """One event. ``at_ms`` is the server's time, in Unix milliseconds."""

    at_ms: int
    what: What
    group: str = ""
    """The consumer group; empty for an event of the stream."""
    consumer: str = ""
    """The consumer that owns the entry, or that owned it until this event; empty if none does."""
    deliveries: int | None = None
    """Delivery count after the event, or the last one if the event ended the delivery; None for other events."""
    due_ms: int | None = None
    """Due time of a delayed entry by the server's clock, in Unix milliseconds; None if it is not delayed."""


class EntryHistory(NamedTuple):
    """The events of an entry, as far back as the journal reaches."""

    begins_ms: int | None
    """Time of the image with which the history begins, in Unix milliseconds; None if it begins with the store."""
    events: list[EntryEvent]


class _Delivery(NamedTuple):
    """The state of the entry in one group in which it is pending."""

    owner: str
    time: int
    deliveries: int
    due_ms: int | None
    cid: int


class _InGroup(NamedTuple):
    """The state of the entry in one group."""

    gid: int
    passed: bool
    """True if the group's position is at the entry or after it."""
    row: _Delivery | None
    """The delivery; None if the entry is not pending."""


class _State(NamedTuple):
    """The state of the entry."""

    sid: int | None
    """The stream's number; None if the stream does not exist."""
    there: bool
    groups: dict[str, _InGroup]


_NOWHERE = _State(None, False, {})


def entry_history(
    files: Files,
    key: bytes,
    entry: StreamID,
    *,
    database: int = 0,
    progress: Progress = silent,
) -> EntryHistory:
    """Return the history of entry ``entry`` of the stream at ``key``.

    Raises `JournalDamaged`, and `StoreUnusable` if the directory has no store.
    """
    watched = _Watched(key, entry, database)
    with reading(files), held_for_backup(files.path(BACKUP_LOCK_NAME)):
        oldest = oldest_past(files)
        with contextlib.suppress(StoreUnusable):  # the id is older than everything kept
            likely = past_before(files, entry.ms)
            if likely != oldest:
                found = _read(files, watched, progress, likely)
                if found.events and found.events[0].what is What.ADDED:
                    return found
        return _read(files, watched, progress, oldest)


def _read(
    files: Files, watched: _Watched, progress: Progress, past: StoreManifest | None
) -> EntryHistory:
    store = StoreReader(files, progress, past=past, live=True)
    store.apply_image()
    watch = _Watch(store.applying, watched)
    began = None if store.image is None else store.image.now_ms
    if began is not None:
        watch.begin(began)
    for batch in store.of_journal():
        if watch.may_concern(batch):
            watch.step_through(batch)
        else:
            store.applying.apply(batch)
    return EntryHistory(began, watch.events)


class _Watched(NamedTuple):
    """An entry whose history is read."""

    key: bytes
    entry: StreamID
    database: int


class _Watch:
    """Compares the state of one entry before and after each record group."""

    def __init__(self, applying: Applying, watched: _Watched) -> None:
        self.events: list[EntryEvent] = []
        self._applying = applying
        self._key, entry, self._database = watched
        self._id = (entry.ms, entry.seq)
        self._wire = _ID.pack(*entry)
        self._text = str(entry).encode()
        self._state = _NOWHERE

    def begin(self, at_ms: int) -> None:
        """Begin with the state of the image."""
        self._state = state = self._look()
        if state.there:
            self.events.append(EntryEvent(at_ms, What.THERE))
        for group, (_gid, _passed, row) in state.groups.items():
            if row is not None:
                self.events.append(
                    EntryEvent(at_ms, What.PENDING, group, row.owner, row.deliveries, row.due_ms)
                )

    def may_concern(self, batch: JournalBatch) -> bool:
        """Return whether a record group of the batch could change the entry's state (rule 4)."""
        state = self._state
        if state.there or any(one.row is not None for one in state.groups.values()):
            return True
        return self._wire in bytes(batch.data[batch.starts[0] : batch.ends[-1]])

    def step_through(self, batch: JournalBatch) -> None:
        """Apply the record groups one by one, and append the events of the entry to ``events``."""
        for one in self._applying.step_through(batch):
            state = self._look()
            if state != self._state:
                kinds = set(one.kinds)
                buried = _APPENDED in kinds and self._text in bytes(one.facts)
                self.events += _changes(self._state, state, kinds, one.now_ms, buried=buried)
                self._state = state

    def _look(self) -> _State:
        databases = self._applying.keyspace.databases
        if self._database >= len(databases):
            return _NOWHERE
        value = databases[self._database].values.get(self._key)
        if not isinstance(value, StoredStream):
            return _NOWHERE
        groups = {
            text_of(name): _InGroup(group.gid, group.last_id >= self._id, self._row(group))
            for name, group in value.groups.items()
        }
        return _State(value.sid, value.log.contains(*self._id), groups)

    def _row(self, group: ConsumerGroup) -> _Delivery | None:
        at = group.pel.find(*self._id)
        if at == NOWHERE:
            return None
        owner = group.consumer_of(at)
        name = "" if owner is None else text_of(owner.name)
        cid = NOBODY if owner is None else owner.cid
        due = group.delayed.get(self._id)
        return _Delivery(name, group.pel.time(at), group.pel.delivery_count(at), due, cid)


def _changes(
    old: _State, new: _State, kinds: set[int], at_ms: int, *, buried: bool
) -> Iterator[EntryEvent]:
    """Yield the events that turned one state into the other."""
    if old.sid is not None and old.sid != new.sid:
        yield EntryEvent(at_ms, What.KEY_GONE)
        old = _NOWHERE
    if new.there and not old.there:
        yield EntryEvent(at_ms, What.ADDED)
    for group, now in new.groups.items():
        before = old.groups.get(group)
        if before is not None and before.gid != now.gid:
            yield EntryEvent(at_ms, What.GROUP_GONE, group)
            before = None
        former = None if before is None else before.row
        if now.row != former:
            yield _delivery(former, now.row, group, kinds, at_ms, buried=buried)
        elif new.there and now.row is None and now.passed and not (before and before.passed):
            yield EntryEvent(at_ms, What.READ if _DELIVERED in kinds else What.SKIPPED, group)
    for group in old.groups.keys() - new.groups.keys():
        yield EntryEvent(at_ms, What.GROUP_GONE, group)
    if old.there and not new.there:
        yield EntryEvent(at_ms, What.TRIMMED if _TRIMMED in kinds else What.DELETED)


def _delivery(
    old: _Delivery | None,
    new: _Delivery | None,
    group: str,
    kinds: set[int],
    at_ms: int,
    *,
    buried: bool,
) -> EntryEvent:
    """Return the event that changed one state of a delivery into the other."""
    if new is None:
        assert old is not None
        what = What.DEAD_LETTERED if buried else What.ACKNOWLEDGED
        if _CONSUMER_DELETED in kinds:
            what = What.DROPPED
        return EntryEvent(at_ms, what, group, old.owner, old.deliveries)
    if new.due_ms is not None:
        what = What.DELAYED
    elif new.cid == NOBODY:
        what = What.DUE if old is not None and old.due_ms is not None else What.RELEASED
    elif old is None:
        what = What.DELIVERED
    elif old.cid == new.cid:
        what = What.RENEWED if old.deliveries == new.deliveries else What.CLAIMED
    else:
        what = What.CLAIMED
    return EntryEvent(at_ms, what, group, new.owner, new.deliveries, new.due_ms)
