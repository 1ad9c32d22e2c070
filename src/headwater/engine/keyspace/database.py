"""One numbered database: its keys, their values and expiries, and the keys that clients wait for or watch.

    values    key ──▶ Stream | bytes (string) | deque (list) | set | dict (hash)
    expiries  key ──▶ steady ms of its expiry; expiry_notes: heap of (at, key), including stale ones
    used      key ──▶ steady ms of its last use; a stream stores its own

Rule 1. An expired key does not exist, even if it was not deleted yet: `lookup` never returns it, and the
        node deletes it, which writes a fact, before one of the next commands runs
        (`MAX_KEYS_EXPIRED_AT_ONCE`).
Rule 2. A change that may end a wait signals the key if it is in ``awaited``. A change that counts as a
        modification for WATCH touches the key if it is in ``watched``. The server fills these two, and
        reads the results in `Keyspace.signalled` and `Keyspace.touched`.
Rule 3. A mutator that replaces a value deletes the old one completely, with its expiry.
Rule 4. A list, set or hash without members does not exist.
Rule 5. A deleted value of any size is unlinked immediately. `Keyspace.garbage` frees it later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from sys import getsizeof
from typing import cast

from headwater.common.limits import SMALL_GARBAGE
from headwater.engine.accounts.memory_account import text_bytes
from headwater.engine.accounts.value_account import (
    UNCOUNTED,
    ValueAccount,
    extend_list,
    remove_fields,
    remove_members,
    remove_places,
    set_text,
    shorten_list,
    update_hash,
    update_set,
)
from headwater.engine.keyspace.key_order import KeyOrder
from headwater.engine.shared.keyspace_state import KeyspaceState
from headwater.engine.shared.signals import KeySignals
from headwater.engine.streams.copying import adopt_facts, adopt_stream, copy_stream
from headwater.engine.streams.stream import StoredStream

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import splice

Value = StoredStream | bytes | dict[bytes, bytes] | deque[bytes] | set[bytes]

NO_EXPIRY = -1

NEW_KEYS = 8192
"""The class of the event ``new``. The database records this event itself, because only it sees every new key."""

_STALE_NOTES = 64
_DRAWS = 100


def _rest_of(value: deque[bytes], rest: int, left: bool) -> deque[bytes]:
    """Return a list of the last ``rest`` elements of ``value`` (``left``), or of the first ``rest``."""
    if not left:
        return deque(islice(value, rest))
    kept: deque[bytes] = deque()
    kept.extendleft(islice(reversed(value), rest))
    return kept


class Database(KeySignals):
    """Keys and their values. Created by `Keyspace`."""

    def __init__(self, keyspace: KeyspaceState, index: int) -> None:
        KeySignals.__init__(self, keyspace, index)
        self.values: dict[bytes, Value] = {}
        self.order = KeyOrder(self.values)
        self.expiries: dict[bytes, int] = {}
        self.expiry_notes: list[tuple[int, bytes]] = []
        self.used: dict[bytes, int] = {}
        self.noted_bytes = 0
        """Size of the names in ``expiry_notes`` that are not the objects in ``values``, in bytes."""
        self.used_bytes = 0
        """Size of the names of the keys that existed when the store was opened, in bytes. In ``used``, they are other
        objects than in ``values``. The memory of ``used`` is estimated from this size."""
        self.newest = b""
        """The key that was added last: the object that ``values`` has."""
        self.account = ValueAccount(keyspace.memory)

    # --- reading --------------------------------------------------------------------------------

    def lookup(self, key: bytes, now_ms: int) -> Value | None:
        """Return the value of ``key``; None if it does not exist or has expired."""
        value = self.values.get(key)
        if value is not None and self.expiries and self._over(key, now_ms):
            return None
        return value

    def keys(self, now_ms: int) -> list[bytes]:
        """Return all existing keys in the order of their creation."""
        if self._nothing_over(now_ms):
            return list(self.values)
        return [key for key in self.values if not self._over(key, now_ms)]

    def count(self, now_ms: int) -> int:
        """Return the number of existing keys."""
        if self._nothing_over(now_ms):
            return len(self.values)
        return len(self.keys(now_ms))

    def random_key(self, draw: Callable[[int], int], now_ms: int) -> bytes | None:
        """Return any existing key, or None if the database is empty. ``draw(n)`` must return a number below n."""
        names = self.order.names
        for _ in range(_DRAWS if self.values else 0):
            key = names[draw(len(names))]
            if self.lookup(key, now_ms) is not None:
                return key
        there = self.keys(now_ms)  # Most places are empty, or most keys have expired.
        return there[draw(len(there))] if there else None

    def first_expiry(self) -> tuple[int, bytes] | None:
        """Return the earliest expiry and its key, as ``(at_ms, key)``; None if no key has an expiry."""
        notes = self.expiry_notes
        if len(notes) > 2 * len(self.expiries) + _STALE_NOTES:
            self._rebuild_notes()
            notes = self.expiry_notes
        while notes:
            at, key = notes[0]
            if self.expiries.get(key) == at:
                return at, key
            self.noted_bytes -= self.noted_bytes // len(notes)
            heappop(notes)
        return None

    def _nothing_over(self, now_ms: int) -> bool:
        if not self.expiries:
            return True
        first = self.first_expiry()
        return first is None or first[0] > now_ms

    def _over(self, key: bytes, now_ms: int) -> bool:
        return self.expiries.get(key, now_ms + 1) <= now_ms

    def use(self, key: bytes, value: Value, now_ms: int) -> None:
        """Set the time of last use of ``key``, whose value is ``value``. Writes no fact: idle times start
        again when the store is opened."""
        if type(value) is StoredStream:  # takes a tenth of the time of isinstance in compiled code
            value.used_ms = now_ms
        else:
            self.used[key] = now_ms

    def used_ms(self, key: bytes) -> int:
        """Return the time of last use of ``key``, in steady ms; 0 if not used since the store was opened."""
        value = self.values.get(key)
        return value.used_ms if isinstance(value, StoredStream) else self.used.get(key, 0)

    # --- mutators -------------------------------------------------------------------------------

    def create_stream(self, key: bytes, sid: int) -> StoredStream:
        """Create an empty stream at ``key``, replacing any value there."""
        self._drop(key)
        stream = StoredStream(self.keyspace, self, key, sid)
        self._place(key, stream, True, UNCOUNTED)
        stream.enter()
        self.keyspace.facts.stream_created(self.index, sid, key)
        self.signal(key)
        return stream

    def set_string(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``, replacing any value there. A key that is a string already keeps its place
        in the order of keys, and the time of its last use, which the caller sets with `use`."""
        old = self.values.get(key)
        if type(old) is bytes:
            self.values[key] = value
            if len(value) != len(old):
                self.account.count(text_bytes(value) - text_bytes(old))
            if self.expiries:
                self.expiries.pop(key, None)
            self.touch(key)
        else:
            if old is not None:
                self._drop(key)
            self._place(key, value, old is None, UNCOUNTED)
        self.keyspace.facts.string_set(self.index, key, value)
        self.signal(key)

    def write_string(self, key: bytes, at: int, part: bytes) -> None:
        """Write ``part`` into the string at ``key`` from byte ``at`` on, with zero bytes between its end and ``at``.
        Creates the string if it does not exist; an expiry remains."""
        # The fact is written first: a failure after it leaves the string half changed and stops the node. `splice`
        # can change the string in place only while no variable refers to it.
        self.keyspace.facts.string_written(self.index, key, at, part)
        if type(self.values.get(key)) is not bytes:
            new = key not in self.values
            self._drop(key)
            self._place(key, b"", new, UNCOUNTED)
        before = text_bytes(cast("bytes", self.values[key]))
        splice(self.values, key, at, part)
        self.account.count(text_bytes(cast("bytes", self.values[key])) - before)
        self.changed(key)

    def set_fields(self, key: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Set fields of the hash at ``key``. Creates the hash if it does not exist."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            self._drop(key)
            value = {}
            self._place(key, value, True, UNCOUNTED)
        self.account.resize(key, update_hash(value, pairs))
        self.keyspace.facts.hash_set(self.index, key, pairs)
        self.signal(key)

    def delete_fields(self, key: bytes, fields: Sequence[bytes]) -> None:
        """Remove fields of the hash at ``key``. Deletes the hash if none remains."""
        value = self.values[key]
        assert isinstance(value, dict)
        self.account.resize(key, remove_fields(value, fields))
        if not value:
            self._drop(key)
        self.keyspace.facts.hash_deleted(self.index, key, fields)

    def delete(self, key: bytes) -> None:
        """Delete ``key``, expired or not."""
        self._drop(key)
        self.keyspace.facts.key_deleted(self.index, key)

    def push(self, key: bytes, values: Sequence[bytes], *, left: bool) -> None:
        """Push values one after the other to one end of the list at ``key``. Creates the list if it does not exist."""
        value = self.values.get(key)
        if not isinstance(value, deque):
            self._drop(key)
            value = deque()
            self._place(key, value, True, UNCOUNTED)
        self.account.resize(key, extend_list(value, values, left=left))
        self.keyspace.facts.list_pushed(self.index, key, left, values)
        self.signal(key)

    def pop(self, key: bytes, count: int, *, left: bool) -> None:
        """Remove ``count`` values from one end of the list at ``key``, which must have that many."""
        value = self.values[key]
        assert isinstance(value, deque)
        rest = len(value) - count
        assert rest >= 0
        if count > max(
            rest, SMALL_GARBAGE
        ):  # takes less time, and the removed elements are freed later
            self.keyspace.discard(value, count)
            value = self.values[key] = _rest_of(value, rest, left)
            size = getsizeof(value) + sum(map(text_bytes, value))
            self.account.resize(key, size - self.account.sizes[key])
        else:
            self.account.resize(key, shorten_list(value, count, left=left))
        if not value:
            self._drop(key)
        self.keyspace.facts.list_popped(self.index, key, left, count)

    def set_element(self, key: bytes, index: int, text: bytes) -> None:
        """Replace element ``index`` of the list at ``key``. The element must exist."""
        value = self.values[key]
        assert isinstance(value, deque)
        self.account.resize(key, set_text(value, index, text))
        self.keyspace.facts.list_set(self.index, key, index, text)

    def remove_elements(self, key: bytes, text: bytes, places: list[int], *, left: bool) -> None:
        """Remove the elements at ``places`` from the list at ``key``: the first (``left``) or last ones that equal
        ``text``, as `places_of` finds them."""
        value = self.values[key]
        assert isinstance(value, deque)
        self.account.resize(key, remove_places(value, places))
        if not value:
            self._drop(key)
        self.keyspace.facts.list_removed(self.index, key, left, len(places), text)

    def add_members(self, key: bytes, members: Sequence[bytes]) -> None:
        """Add members to the set at ``key``. Creates the set if it does not exist."""
        value = self.values.get(key)
        if not isinstance(value, set):
            self._drop(key)
            value = set()
            self._place(key, value, True, UNCOUNTED)
        self.account.resize(key, update_set(value, members))
        self.keyspace.facts.set_added(self.index, key, members)
        self.signal(key)

    def remove_members(self, key: bytes, members: Sequence[bytes]) -> None:
        """Remove members from the set at ``key``."""
        value = self.values[key]
        assert isinstance(value, set)
        self.account.resize(key, remove_members(value, members))
        if not value:
            self._drop(key)
        self.keyspace.facts.set_removed(self.index, key, members)

    def set_expiry(self, key: bytes, at_ms: int) -> None:
        """Set the expiry of the key to ``at_ms``; `NO_EXPIRY` removes it."""
        self._expire_at(key, None if at_ms == NO_EXPIRY else at_ms)
        self.keyspace.facts.expiry_set(self.index, key, at_ms)

    def rename(self, key: bytes, target: Database, name: bytes) -> None:
        """Move the value at ``key``, with its expiry, to ``name`` of ``target``, replacing any value there. A
        stream keeps its number and its groups."""
        assert target is not self or key != name
        value = self.values.pop(key)
        size = self.account.remove(key, value)
        at_ms, used_ms = self._forget_times(key)
        target._drop(name)
        target._place(name, value, True, size)
        target._expire_at(name, at_ms)
        if used_ms is not None:
            target.used[name] = used_ms
        if isinstance(value, StoredStream):
            value.db, value.key = target, name
        self.keyspace.facts.key_renamed(self.index, key, target.index, name)
        self.changed(key)
        target.changed(name)

    def copy(
        self, key: bytes, target: Database, name: bytes, sid: int, gids: Sequence[tuple[int, int]]
    ) -> None:
        """Copy the value at ``key``, with its expiry, to ``name`` of ``target``, replacing any value there.
        The copy of a stream gets the number ``sid``; ``gids`` are pairs of the numbers of a group and its
        copy."""
        assert target is not self or key != name
        value, at_ms = self.values[key], self.expiries.get(key)
        size = self.account.sizes.get(key, UNCOUNTED)
        target._drop(name)
        if isinstance(value, StoredStream):
            value = copy_stream(value, target, name, sid, dict(gids))
        elif not isinstance(value, bytes):
            value = value.copy()
        target._place(name, value, True, size)
        target._expire_at(name, at_ms)
        self.keyspace.facts.key_copied(self.index, key, target.index, name, sid, gids)
        target.changed(name)

    def adopt(self, key: bytes, value: Value, facts: bytearray, *, now_ms: int) -> None:
        """Set ``key`` to ``value``, which was built in another keyspace, replacing any value at ``key``.
        ``facts`` are the facts that built it; ``now_ms`` is the time of their record group."""
        if isinstance(value, StoredStream):
            self._drop(key)
            adopt_stream(value, self, key, now_ms=now_ms)
        elif key in self.values:
            self.delete(key)
        self._place(key, value, True, UNCOUNTED)
        adopt_facts(self.keyspace.facts, facts)
        self.signal(key)

    # --- parts of mutators ----------------------------------------------------------------------

    def clear(self) -> None:
        """Delete every key. Part of `Keyspace.empty`, which handles the streams."""
        concerned = self.concerned(self.values)
        if self.values:
            self.keyspace.garbage.append(self.values)
        self.values = {}
        self.order = KeyOrder(self.values)
        self.expiries, self.expiry_notes, self.used = {}, [], {}
        self.noted_bytes = self.used_bytes = 0
        self.account.clear()
        self.keyspace.expiring.pop(self, None)
        for key in concerned:
            self.changed(key)

    def exchange(self, other: Database) -> None:
        """Swap keys with ``other``. Part of `Keyspace.swap`, which handles the streams. Waits and watches
        stay with their database and key name."""
        concerned = [
            (database, key)
            for database in (self, other)
            for key in dict.fromkeys(
                [*database.concerned(self.values), *database.concerned(other.values)]
            )
        ]
        self.values, other.values = other.values, self.values
        self.order, other.order = other.order, self.order
        self.expiries, other.expiries = other.expiries, self.expiries
        self.expiry_notes, other.expiry_notes = other.expiry_notes, self.expiry_notes
        self.used, other.used = other.used, self.used
        self.noted_bytes, other.noted_bytes = other.noted_bytes, self.noted_bytes
        self.used_bytes, other.used_bytes = other.used_bytes, self.used_bytes
        self.newest, other.newest = other.newest, self.newest
        self.account, other.account = other.account, self.account
        for database in (self, other):
            self.keyspace.expiring.pop(database, None)
            if database.expiry_notes:
                self.keyspace.expiring[database] = None
        for database, key in concerned:
            database.changed(key)

    def concerned(self, values: dict[bytes, Value]) -> list[bytes]:
        """Return the keys of ``values`` that clients of this database wait for or watch."""
        return [key for key in {**self.awaited, **self.watched} if key in values]

    def changed(self, key: bytes) -> None:
        """Report a change of ``key`` that may end a wait and makes a WATCH fail."""
        self.signal(key)
        self.touch(key)

    def _expire_at(self, key: bytes, at_ms: int | None) -> None:
        if at_ms is None:
            self.expiries.pop(key, None)
            return
        self.expiries[key] = at_ms
        heappush(self.expiry_notes, (at_ms, key))
        if key is not self.newest:
            self.noted_bytes += text_bytes(key)
        if len(self.expiry_notes) > 2 * len(self.expiries) + _STALE_NOTES:
            self._rebuild_notes()
        self.keyspace.expiring[self] = None

    def _rebuild_notes(self) -> None:
        """Remove stale notes. Call it when they outnumber the valid ones."""
        before = len(self.expiry_notes)
        self.expiry_notes = [(at, key) for key, at in self.expiries.items()]
        heapify(self.expiry_notes)
        self.noted_bytes = self.noted_bytes * len(self.expiry_notes) // max(1, before)

    def _place(self, key: bytes, value: Value, new: bool, size: int) -> None:
        self.values[key] = value
        self.newest = key
        self.account.place(key, value, size)
        self.order.add(key, len(self.values))
        if new and self.keyspace.notified & NEW_KEYS:
            self.keyspace.events.append((self.index, b"new", key))

    def _forget_times(self, key: bytes) -> tuple[int | None, int | None]:
        """Forget a key that was removed. Return its expiry and the time of its last use, each None if not set."""
        self.order.remove(key, len(self.values))
        return self.expiries.pop(key, None), self.used.pop(key, None)

    def _drop(self, key: bytes) -> None:
        value = self.values.pop(key, None)
        if value is None:
            return
        self.account.remove(key, value)
        self._forget_times(key)
        if isinstance(value, StoredStream):
            value.leave()
        elif not isinstance(value, bytes):
            self.keyspace.discard(value, len(value))
        self.changed(key)
