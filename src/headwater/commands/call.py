"""`Call`, the argument of a command, and `Wait`, a result that makes the client wait.

Rule 1. A command is ``def xadd(call: Call) -> Wait | Job | None``. A `Job` is offloaded work (jobs.py).
Rule 2. A command first decides what to do: it parses, looks up, and resolves ``*``, ``$``, ``~`` and the time.
        In this phase it may raise `CommandError`: nothing has changed and no reply is written.
Rule 3. Then it calls `Call.admit`, which asks if the journal can take the facts. Only after that does it call
        mutators and write the reply.
Rule 4. A command that returns `Wait` or raises `ColdBlocks` (docs/adr/0003) has changed nothing, except that
        XREADGROUP may create consumers and set seen times before a `Wait`. A reply that was begun is dropped.

See docs/adr/0001-call-and-reply.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headwater.commands.times import WallOffset
from headwater.common.limits import MAX_ENTRY_BYTES, MAX_NUMBER
from headwater.config.streams import StreamConfig
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.database import Database, Value
from headwater.engine.keyspace.events import MISSED
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError, NoRoom
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import cut, is_part, word_at

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX = "ERR syntax error"
NO_SUCH_KEY = "ERR no such key"
NO_NUMBER = (
    f"ERR this store has created {MAX_NUMBER} streams, groups, or consumers of this group, which is the most: move its "
    "keys to a new store with DUMP and RESTORE"
)


def shown(name: bytes) -> str:
    """Return a name as text for an error. As in Redis, the text ends at the first NUL. Bytes that are not UTF-8
    become surrogates, which the reply writer turns back into the same bytes.

    >>> shown(b"orders"), shown(b"orders\\x00eu")
    ('orders', 'orders')
    """
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")


class Wait:
    """The result of a command that has nothing to return yet and whose client may block.

    The client waits for signals of ``keys`` in the call's database; ``timeout_ms`` 0 means no timeout. When the
    client is woken, ``arguments`` are run again from the start (``$`` is already replaced by an id).
    ``recheck_at_ms`` is the steady time at which the command runs again without a signal; None means never. With
    ``for_streams``, a signal counts only while the key holds a stream: XREAD continues to wait if the key is
    deleted or gets another type, whereas XREADGROUP runs again and fails. With ``for_lists``, the key must hold a
    list. ``at_timeout`` is the reply at the timeout, in RESP; None is a nil array. Clients that wait for a key
    with an equal ``alike`` (not None) can use the same signals: if the first of these clients finds nothing, the
    others find nothing either. ``group`` is set if the client waits only for new entries of that group.
    """

    def __init__(self, keys: list[bytes], timeout_ms: int, arguments: Arguments) -> None:
        self.keys = keys
        self.timeout_ms = timeout_ms
        self.arguments = arguments
        self.recheck_at_ms: int | None = None
        self.for_streams = False
        self.for_lists = False
        self.at_timeout: bytes | None = None
        self.alike: bytes | tuple[int, bytes] | None = None
        self.group: ConsumerGroup | None = None

    def wakes_on(self, value: Value | None) -> bool:
        """Return whether the client is woken by a signal of a key that holds ``value``."""
        if self.for_streams:
            return isinstance(value, StoredStream)
        return not self.for_lists or isinstance(value, deque)

    def finds_nothing(self, value: Value | None) -> bool:
        """Return whether the command would certainly find nothing in ``value``, the current value of its key."""
        group = self.group
        return (
            group is not None
            and group.stream is value
            and group.stream.groups.get(group.name) is group
            and group.stream.last_id <= group.last_id
        )


Admission = Callable[[int], str | None]
"""Reserves room in the journal for a number of bytes of facts. Returns None, or the reason why it cannot."""


def always_admitted(_size: int) -> str | None:
    """Admit any number of bytes: the admission of a store without a journal."""
    return None


_KEPT_KEY_BYTES = 256
"""Maximum length of a key that `Call.key` keeps for the next command, in bytes."""

Draw = Callable[[int], int]
"""Returns a uniformly distributed random integer from 0 to its argument - 1. The server provides the function."""


def new_number(number: int, more: int = 0) -> int:
    """Return ``number``, the next one of streams, groups or consumers. Raises `CommandError` if it, or one of the
    ``more`` after it, is too large for a fact. Call it before anything changes."""
    if number + more > MAX_NUMBER:
        raise CommandError(NO_NUMBER)
    return number


def always_first(_below: int) -> int:
    """Return 0: the draw of a call without a source of random numbers."""
    return 0


_DEFAULTS = StreamConfig()


class StreamSettings:
    """The settings that commands on streams read. CONFIG SET changes them in place."""

    def __init__(self, config: StreamConfig = _DEFAULTS) -> None:
        self.max_entry_bytes = MAX_ENTRY_BYTES
        self.adopt(config)

    def adopt(self, config: StreamConfig) -> None:
        """Copy the values of ``config``."""
        self.node_max_bytes = config.stream_node_max_bytes
        self.node_max_entries = config.stream_node_max_entries
        self.autoclaim_scan_factor = config.stream_autoclaim_scan_factor
        self.dump_format: str = config.dump_format
        self.idmp_duration_s = config.stream_idmp_duration
        self.idmp_maxsize = config.stream_idmp_maxsize


class Call:
    """The argument of a command: its request, its reply and the store. A session uses one `Call` for all commands.

    ``db`` is the session's selected database, ``keyspace`` has all databases. ``may_block`` is False in
    MULTI/EXEC and Lua, where a blocking command replies immediately. ``now_ms`` is steady time, which all ages and
    stored times use; ``wall`` converts it to times of the wall clock and back.
    """

    def __init__(self, keyspace: Keyspace, reply: ReplyWriter) -> None:
        self.keyspace = keyspace
        self.db: Database = keyspace.databases[0]
        self.arguments = Arguments()
        self.now_ms = 0
        self.wall = WallOffset()
        self.reply = reply
        self.may_block = True
        self.offloads = False
        """True if the client can wait for an offloaded job (jobs.py)."""
        self.admission: Admission = always_admitted
        self.settings = StreamSettings()
        self.draw: Draw = always_first
        self.spare: object = None
        """An object that a command keeps to reuse it in its next run."""
        self._key = b""
        self.admitted = False
        """True if the current command has called `admit`, and so may have changed something."""
        self.touches = True
        """True if looking up a key resets its idle time (CLIENT NO-TOUCH)."""

    def wall_ms(self) -> int:
        """Return ``now_ms`` as a time of the wall clock, in Unix milliseconds: for new ids and for people."""
        return self.now_ms + self.wall.ahead_ms

    def key(self, index: int) -> bytes:
        """Return argument ``index``, a key, as bytes: the same object again if a client repeats a short key."""
        arguments, key = self.arguments, self._key
        start, end = word_at(arguments.starts, index), word_at(arguments.ends, index)
        if not is_part(key, arguments.buffer, start, end):
            key = cut(arguments.buffer, start, end)
            if len(key) <= _KEPT_KEY_BYTES:
                self._key = key
        return key

    def admit(self, size: int) -> None:
        """Make sure that the journal can take ``size`` more bytes of facts; ``size`` is an upper bound.

        Raises `NoRoom` with the error that `admission` returns. Must be called before the first mutator.
        """
        if self.admission is not always_admitted:
            refusal = self.admission(len(self.keyspace.facts.data) + size)
            if refusal is not None:
                raise NoRoom(refusal)
        self.admitted = True

    def modified(self, key: bytes, changes: int = 1) -> None:
        """Break every WATCH of ``key``, and add ``changes`` to the counter of changes (Redis: dirty)."""
        self.db.touch(key)
        self.keyspace.dirty += changes

    def notify(self, kind: int, event: bytes, key: bytes, db: Database | None = None) -> None:
        """Record a keyspace event for ``key``. ``kind`` is its class, from `headwater.engine.keyspace.events`; ``db``
        defaults to the database of the call."""
        if self.keyspace.notified & kind:
            index = self.db.index if db is None else db.index
            self.keyspace.events.append((index, event, key))

    def stream(self, key: bytes) -> StoredStream | None:
        """Return the stream at ``key``, None if the key does not exist. Raises WRONGTYPE for another type."""
        value = self.db.lookup(key, self.now_ms)
        return None if value is None else self._checked(value)

    def read_stream(self, key: bytes) -> StoredStream | None:
        """Return the stream as `stream` does, and count a hit or a miss, with an event for a miss. For commands that
        look up the key for reading in Redis."""
        value = self.db.lookup(key, self.now_ms)
        if value is None:
            self.missed(key)
            return None
        self.keyspace.hits += 1
        return self._checked(value)

    def _checked(self, value: Value) -> StoredStream:
        if isinstance(value, StoredStream):
            found: StoredStream = value
            if self.touches:
                found.used_ms = self.now_ms
            return found
        raise CommandError(WRONGTYPE)

    def lookup(self, key: bytes) -> Value | None:
        """Return the value at ``key``, None if the key does not exist. Resets the key's idle time."""
        value = self.db.lookup(key, self.now_ms)
        if value is not None and self.touches:
            self.db.use(key, value, self.now_ms)
        return value

    def read(self, key: bytes) -> Value | None:
        """Return the value as `lookup` does, and count a hit or a miss, with an event for a miss."""
        value = self.lookup(key)
        if value is None:
            self.missed(key)
        else:
            self.keyspace.hits += 1
        return value

    def missed(self, key: bytes) -> None:
        """Count a miss of ``key`` and record its keyspace event."""
        self.keyspace.misses += 1
        self.notify(MISSED, b"keymiss", key)

    def create_stream(self, key: bytes) -> StoredStream:
        """Create a stream at ``key``, configured by the settings. The caller must have admitted two facts:
        `2 * (HEADROOM + len(key))` bytes."""
        stream = self.db.create_stream(key, new_number(self.keyspace.next_sid))
        stream.used_ms = self.now_ms
        begins, settings = stream.idempotency, self.settings
        wanted = (settings.idmp_duration_s, settings.idmp_maxsize)
        if wanted != (begins.duration_s, begins.maxsize):
            begins.configure(*wanted)
        return stream
