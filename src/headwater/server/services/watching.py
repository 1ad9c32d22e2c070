"""WATCH: the watches of clients, and the detection of broken ones.

The engine notes each watched key that is modified (`headwater.engine.keyspace.database`, rule 2). The notes
are read when needed: before a client begins to watch, and before a watch is checked.

A key that expires breaks its watches even before it is deleted. The later deletion of a key that had
expired before the WATCH breaks none.
"""

from __future__ import annotations

from headwater.engine.accounts.memory_account import table_bytes, text_bytes
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.shared.keyspace_state import Place
from headwater.server.session.output import ClientMemory
from headwater.server.session.watch import Watch

_WATCH_BYTES, _KEY_BYTES = 74, 240
"""Bytes per key for each client that watches it, without its name, and for all clients together."""


class Watches:
    """The watches of all clients of a keyspace.

    >>> keyspace = Keyspace()
    >>> watches, watch = Watches(keyspace, ClientMemory()), Watch()
    >>> watches.add(watch, (0, b"stock"))
    >>> keyspace.databases[0].touch(b"stock")
    >>> watches.broken(watch)
    True
    """

    def __init__(self, keyspace: Keyspace, memory: ClientMemory) -> None:
        self._keyspace = keyspace
        self._memory = memory
        self._by_key: dict[Place, dict[Watch, None]] = {}

    def add(self, watch: Watch, place: Place, now_ms: int = 0) -> None:
        """Break ``watch`` when the key at ``place`` is modified from now on."""
        self._read_notes()
        watches = self._by_key.get(place)
        if watches is None:
            watches = self._by_key[place] = {}
            self._memory.held_bytes += _KEY_BYTES
        if watch not in watches:
            watches[watch] = None
            watch.keys.append(place)
            self._note(place)
            size = _WATCH_BYTES + text_bytes(place[1])
            watch.held_bytes += size
            self._memory.held_bytes += size
            if self._is_stale(place, now_ms):
                watch.stale.add(place)

    def end(self, watch: Watch) -> None:
        """Remove all keys of ``watch``, and reset it if it was broken."""
        for place in watch.keys:
            watches = self._by_key[place]
            del watches[watch]
            if not watches:
                del self._by_key[place]
                self._memory.held_bytes -= _KEY_BYTES
                db, key = place
                del self._keyspace.databases[db].watched[key]
        watch.keys.clear()
        watch.stale.clear()
        watch.broken = False
        self._memory.held_bytes -= watch.held_bytes
        watch.held_bytes = 0

    def broken(self, watch: Watch) -> bool:
        """Return whether a key of ``watch`` was modified after it was added."""
        if not watch.keys:
            return False
        self._read_notes()
        return watch.broken

    def expired(self, watch: Watch, now_ms: int) -> bool:
        """Return whether a key of ``watch`` has expired after it was added, and is not deleted yet."""
        return any(
            place not in watch.stale and self._is_stale(place, now_ms) for place in watch.keys
        )

    def _is_stale(self, place: Place, now_ms: int) -> bool:
        db, key = place
        database = self._keyspace.databases[db]
        return key in database.expiries and database.lookup(key, now_ms) is None

    def tables_bytes(self) -> int:
        """Return the memory of the tables of keys, after reading the notes, which then take no memory."""
        self._read_notes()
        watched = [table_bytes(one.watched) for one in self._keyspace.databases]
        return table_bytes(self._by_key) + sum(watched)

    def count_keys(self) -> int:
        """Return the number of watched keys."""
        return len(self._by_key)

    def move(self, keyspace: Keyspace) -> None:
        """Watch the same keys of ``keyspace``, the new keyspace. All count as modified."""
        self._keyspace = keyspace
        for place, watches in self._by_key.items():
            self._note(place)
            for watch in watches:
                watch.broken = True

    def _note(self, place: Place) -> None:
        db, key = place
        self._keyspace.databases[db].watched[key] = None

    def _read_notes(self) -> None:
        touched = self._keyspace.touched
        if touched:
            for place in touched:
                db, key = place
                is_gone = key not in self._keyspace.databases[db].values
                for watch in self._by_key.get(place, ()):
                    if is_gone and place in watch.stale:
                        watch.stale.remove(place)
                    else:
                        watch.broken = True
            touched.clear()
