"""One numbered database: its keys, their values and expiry, who waits for and who watches them.

Rule 1. A key with a time is gone when the time has come, whether or not it was deleted yet: `lookup`
        never returns it, and the node deletes it soon after (`Keyspace.expired`), which is a fact.
Rule 2. Whatever may end a wait signals the key; the waiting command is run again and judges itself.
Rule 3. A mutator that puts a value over another drops the old one wholly, and its expiry with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.engine.key_order import KeyOrder
from headwater.engine.stream import Stream

if TYPE_CHECKING:
    from headwater.engine.keyspace import Keyspace

Value = Stream | bytes | dict[bytes, bytes]

NO_EXPIRY = -1


class WatchToken:
    """One client's WATCH: ``broken`` once a watched key was modified."""

    def __init__(self) -> None:
        self.broken = False
        self.keys: list[tuple[Database, bytes]] = []


class Database:
    """Keys and values; made by `Keyspace`."""

    def __init__(self, keyspace: Keyspace, index: int) -> None:
        self.keyspace = keyspace
        self.index = index
        self.values: dict[bytes, Value] = {}
        self.order = KeyOrder(self.values)
        self.expiries: dict[bytes, int] = {}
        self.waited: dict[bytes, int] = {}
        """How many blocked clients wait for a key; kept by whoever blocks them."""
        self.watched: dict[bytes, list[WatchToken]] = {}

    # --- reading --------------------------------------------------------------------------------

    def lookup(self, key: bytes, now_ms: int) -> Value | None:
        """The value of ``key``; None if there is none or its time has come."""
        value = self.values.get(key)
        if value is not None and self.expiries and self._over(key, now_ms):
            return None
        return value

    def keys(self, now_ms: int) -> list[bytes]:
        """All keys that are there, in the order in which they came."""
        if not self.expiries:
            return list(self.values)
        return [key for key in self.values if not self._over(key, now_ms)]

    def _over(self, key: bytes, now_ms: int) -> bool:
        return self.expiries.get(key, now_ms + 1) <= now_ms

    # --- who waits, who watches -----------------------------------------------------------------

    def signal(self, key: bytes) -> None:
        """Something happened to ``key`` that may end a wait."""
        if self.waited and key in self.waited:
            self.keyspace.signalled[self.index, key] = None

    def touch(self, key: bytes) -> None:
        """``key`` was modified in the sense of WATCH."""
        if self.watched:
            for token in self.watched.get(key, ()):
                token.broken = True

    def watch(self, key: bytes, token: WatchToken) -> None:
        tokens = self.watched.setdefault(key, [])
        if token not in tokens:
            tokens.append(token)
            token.keys.append((self, key))

    @staticmethod
    def unwatch(token: WatchToken) -> None:
        """Forget all that ``token`` watches."""
        for database, key in token.keys:
            tokens = database.watched[key]
            tokens.remove(token)
            if not tokens:
                del database.watched[key]
        token.keys.clear()
        token.broken = False

    # --- mutators -------------------------------------------------------------------------------

    def create_stream(self, key: bytes, sid: int) -> Stream:
        """An empty stream at ``key``, over whatever was there."""
        self._drop(key)
        stream = Stream(self.keyspace, self, key, sid)
        self._place(key, stream)
        self.keyspace.streams[sid] = stream
        self.keyspace.next_sid = max(self.keyspace.next_sid, sid + 1)
        self.keyspace.facts.stream_created(self.index, sid, key)
        self.signal(key)
        return stream

    def set_string(self, key: bytes, value: bytes) -> None:
        """``value`` at ``key``, over whatever was there."""
        self._drop(key)
        self._place(key, value)
        self.keyspace.facts.string_set(self.index, key, value)
        self.signal(key)

    def set_fields(self, key: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Set fields of the hash at ``key``; a hash is made where there is none."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            self._drop(key)
            value = {}
            self._place(key, value)
        value.update(pairs)
        self.keyspace.facts.hash_set(self.index, key, pairs)
        self.signal(key)

    def delete_fields(self, key: bytes, fields: Sequence[bytes]) -> None:
        """Remove fields of the hash at ``key``; a hash without fields goes."""
        value = self.values[key]
        assert isinstance(value, dict)
        for field in fields:
            value.pop(field, None)
        if not value:
            self._drop(key)
        self.keyspace.facts.hash_deleted(self.index, key, fields)

    def delete(self, key: bytes) -> None:
        """Remove ``key``, expired or not."""
        self._drop(key)
        self.keyspace.facts.key_deleted(self.index, key)

    def set_expiry(self, key: bytes, at_ms: int) -> None:
        """The key ends at ``at_ms``; `NO_EXPIRY` lets it live."""
        if at_ms == NO_EXPIRY:
            self.expiries.pop(key, None)
        else:
            self.expiries[key] = at_ms
            self.keyspace.note_expiry(at_ms, self.index, key)
        self.keyspace.facts.expiry_set(self.index, key, at_ms)

    def flush(self) -> None:
        """Empty this database."""
        self.clear()
        self.keyspace.facts.flushed(self.index)

    def clear(self) -> None:
        """Drop every key; part of `flush` and `Keyspace.flush_all`."""
        for key in list(self.values):
            self._drop(key)

    def _place(self, key: bytes, value: Value) -> None:
        self.values[key] = value
        self.order.add(key, len(self.values))

    def _drop(self, key: bytes) -> None:
        value = self.values.pop(key, None)
        if value is None:
            return
        self.expiries.pop(key, None)
        if isinstance(value, Stream):
            del self.keyspace.streams[value.sid]
            for group in value.groups.values():
                self.keyspace.drop_group(group)
        self.signal(key)
        self.touch(key)
