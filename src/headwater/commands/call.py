"""What a command is given and what it gives back. The seam between everything that speaks RESP and
everything that keeps state.

Rule 1. A command is ``def xadd(call: Call) -> Wait | Missing | None``.
Rule 2. It chooses first: parses, looks up, resolves ``*``, ``$``, ``~`` and the clock. While it
        chooses it may raise `CommandError`; nothing has changed and nothing is written.
Rule 3. Between choosing and the first mutator stands `Call.admit`: the journal says whether it can
        take the facts. Only after that are mutators called and the reply written.
Rule 4. `Wait` and `Missing` come with nothing changed and nothing written to the reply.

See docs/adr/0001-call-and-reply.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headwater.commands.times import WallOffset
from headwater.config.streams import StreamConfig
from headwater.engine.database import Database, Value
from headwater.engine.events import MISSED
from headwater.engine.group import ConsumerGroup
from headwater.engine.keyspace import Keyspace
from headwater.engine.stream import StoredStream
from headwater.errors import CommandError, NoRoom
from headwater.limits import MAX_ENTRY_BYTES
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import cut, is_part, word_at

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX = "ERR syntax error"
NO_SUCH_KEY = "ERR no such key"
MISCONF = (
    "MISCONF Headwater cannot write its journal: {reason}. The command was not executed; reads go "
    "on. Free space on the disk of the data directory and send it again."
)


def shown(name: bytes) -> str:
    """A name as it stands in an error text, where it ends at its first NUL as in Redis; the reply
    writer turns it back into the same bytes.

    >>> shown(b"orders"), shown(b"orders\\x00eu")
    ('orders', 'orders')
    """
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")


class Wait:
    """The command has nothing to serve and its client may block.

    ``keys`` are waited on in the database of the call. ``timeout_ms`` 0 waits for ever. On a wake
    ``arguments`` are run again from the start (``$`` is already an id in them). ``recheck_at_ms``
    is the steady time at which to run again although no key was signalled, None if never. With
    ``for_streams`` a signal counts only while its key holds a stream: XREAD waits on when the key
    goes or becomes something else, XREADGROUP hears of it. With ``for_lists`` it must hold a list.
    ``at_timeout`` is the answer, in RESP, when the time is over; None is a nil array. Those who wait
    with the same ``alike`` for a key wait for the same: what the first of them has no use for, none of
    them has. A ``group`` is given by who waits for its new entries and nothing else.
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

    def heeds(self, value: Value | None) -> bool:
        """Whether a signal of a key that holds ``value`` now counts."""
        if self.for_streams:
            return isinstance(value, StoredStream)
        return not self.for_lists or isinstance(value, deque)

    def finds_nothing(self, value: Value | None) -> bool:
        """Whether it is known that the command would find nothing more in ``value`` of its key."""
        group = self.group
        return (
            group is not None
            and group.stream is value
            and group.stream.groups.get(group.name) is group
            and group.stream.last_id <= group.last_id
        )


class Missing(NamedTuple):
    """Blocks that must be read from disk before the command can run; it is run again from its start
    when they are resident. While nothing is spilled, no command returns it."""

    blocks: list[object]


Admission = Callable[[int], str | None]
"""Asks the journal to have room for so many bytes of facts; the reason why it has not, or None."""


def always_admitted(_size: int) -> str | None:
    """The admission of a store without a journal."""
    return None


_KEPT_KEY_BYTES = 256
"""A client does not keep a longer key in memory after its command."""

Draw = Callable[[int], int]
"""Draws a number below another, each as likely: chance is the server's to give, like time."""


def always_first(_below: int) -> int:
    """The draw of whoever has no chance to give."""
    return 0


_DEFAULTS = StreamConfig()


class StreamSettings:
    """The settings of streams that commands read; changed in place by CONFIG SET."""

    def __init__(self, config: StreamConfig = _DEFAULTS) -> None:
        self.max_entry_bytes = MAX_ENTRY_BYTES
        self.adopt(config)

    def adopt(self, config: StreamConfig) -> None:
        """Take the values of ``config``."""
        self.node_max_bytes = config.stream_node_max_bytes
        self.node_max_entries = config.stream_node_max_entries
        self.autoclaim_scan_factor = config.stream_autoclaim_scan_factor
        self.dump_format: str = config.dump_format
        self.idmp_duration_s = config.stream_idmp_duration
        self.idmp_maxsize = config.stream_idmp_maxsize


class Call:
    """One command about to run. One object a session, reused from command to command.

    ``db`` is the session's selected database, ``keyspace`` all of them. ``may_block`` is False in
    MULTI/EXEC and Lua, where a blocking command answers at once. ``now_ms`` is steady time, which ages
    and everything that is kept are in; ``wall`` makes times of the wall clock of it and back.
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
        """Whether its client can wait for a job (jobs.py)."""
        self.admission: Admission = always_admitted
        self.settings = StreamSettings()
        self.draw: Draw = always_first
        self.spare: object = None
        """What a command keeps of its objects for its next run."""
        self._key = b""
        self.touches = True
        """Whether commands count as use of the keys that they look up (CLIENT NO-TOUCH)."""

    def wall_ms(self) -> int:
        """The same moment as ``now_ms`` by the wall clock, Unix ms: for new ids and for people."""
        return self.now_ms + self.wall.ahead_ms

    def key(self, index: int) -> bytes:
        """Argument ``index``, a key, as bytes: for a client that names the same one again and again
        the same object."""
        arguments, key = self.arguments, self._key
        start, end = word_at(arguments.starts, index), word_at(arguments.ends, index)
        if not is_part(key, arguments.buffer, start, end):
            key = cut(arguments.buffer, start, end)
            if len(key) <= _KEPT_KEY_BYTES:
                self._key = key
        return key

    def admit(self, size: int) -> None:
        """Make sure that the journal can take ``size`` more bytes of facts, an upper bound.

        Raises `NoRoom` (MISCONF) when it cannot; nothing may have been mutated yet.
        """
        if self.admission is always_admitted:
            return
        reason = self.admission(len(self.keyspace.facts.data) + size)
        if reason is not None:
            raise NoRoom(MISCONF.format(reason=reason))

    def modified(self, key: bytes, changes: int = 1) -> None:
        """``key`` changed in the sense of WATCH, ``changes`` times in the sense of Redis's dirty
        counter."""
        self.db.touch(key)
        self.keyspace.dirty += changes

    def notify(self, kind: int, event: bytes, key: bytes, db: Database | None = None) -> None:
        """A keyspace event of a class of `headwater.engine.events` happened to ``key``, in ``db``
        if that is not the database of the call."""
        if self.keyspace.notified & kind:
            index = self.db.index if db is None else db.index
            self.keyspace.events.append((index, event, key))

    def stream(self, key: bytes) -> StoredStream | None:
        """The stream at ``key``, None if there is no such key; WRONGTYPE if it holds another type."""
        value = self.db.lookup(key, self.now_ms)
        return None if value is None else self._checked(value)

    def read_stream(self, key: bytes) -> StoredStream | None:
        """As `stream`, for commands that look a key up for reading in Redis: it is a hit or a miss,
        and a miss is an event."""
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
        """The value at ``key``, which is used by this; None if there is no such key."""
        value = self.db.lookup(key, self.now_ms)
        if value is not None and self.touches:
            self.db.use(key, self.now_ms)
        return value

    def read(self, key: bytes) -> Value | None:
        """As `lookup`, for commands that only read: it is a hit or a miss, and a miss is an event."""
        value = self.lookup(key)
        if value is None:
            self.missed(key)
        else:
            self.keyspace.hits += 1
        return value

    def missed(self, key: bytes) -> None:
        """There is no ``key`` that could be read."""
        self.keyspace.misses += 1
        self.notify(MISSED, b"keymiss", key)

    def create_stream(self, key: bytes) -> StoredStream:
        """A new stream at ``key``, configured as the settings say that new ones are; two facts of
        `HEADROOM` and the key, admitted before."""
        stream = self.db.create_stream(key, self.keyspace.next_sid)
        stream.used_ms = self.now_ms
        begins, settings = stream.idempotency, self.settings
        wanted = (settings.idmp_duration_s, settings.idmp_maxsize)
        if wanted != (begins.duration_s, begins.maxsize):
            begins.configure(*wanted)
        return stream
