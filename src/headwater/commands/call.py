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

from collections.abc import Callable
from typing import NamedTuple

from headwater.engine.database import Database
from headwater.engine.keyspace import Keyspace
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX = "ERR syntax error"
NO_SUCH_KEY = "ERR no such key"
MISCONF = (
    "MISCONF Headwater cannot write its journal: {reason}. The command was not executed; reads go "
    "on. Free space on the disk of the data directory and send it again."
)


def shown(name: bytes) -> str:
    """A name as it stands in an error text; the reply writer turns it back into the same bytes."""
    return name.decode("utf-8", "surrogateescape")


class Wait(NamedTuple):
    """The command has nothing to serve and its client may block.

    ``keys`` are waited on in the database of the call. ``timeout_ms`` 0 waits for ever. On a wake
    ``arguments`` are run again from the start (``$`` is already an id in them). ``recheck_at_ms``
    is the Unix time at which to run again although no key was signalled, None if never. With
    ``for_streams`` a signal counts only while its key holds a stream: XREAD waits on when the key
    goes or becomes something else, XREADGROUP hears of it.
    """

    keys: list[bytes]
    timeout_ms: int
    arguments: Arguments
    recheck_at_ms: int | None = None
    for_streams: bool = False


class Missing(NamedTuple):
    """Blocks that must be read from disk before the command can run; it is run again from its start
    when they are resident. While nothing is spilled, no command returns it."""

    blocks: list[object]


Admission = Callable[[int], str | None]
"""Asks the journal to have room for so many bytes of facts; the reason why it has not, or None."""


def always_admitted(_size: int) -> str | None:
    """The admission of a store without a journal."""
    return None


class StreamSettings:
    """What the configuration says about streams; changed in place by CONFIG SET."""

    def __init__(self) -> None:
        self.node_max_bytes = 4096
        self.node_max_entries = 100
        self.autoclaim_scan_factor = 10
        self.dump_format = "8.8"


class Call:
    """One command about to run. One object a session, reused from command to command.

    ``db`` is the session's selected database, ``keyspace`` all of them. ``may_block`` is False in
    MULTI/EXEC and Lua, where a blocking command answers at once.
    """

    def __init__(self, keyspace: Keyspace, reply: ReplyWriter) -> None:
        self.keyspace = keyspace
        self.db: Database = keyspace.databases[0]
        self.arguments = Arguments()
        self.now_ms = 0
        self.reply = reply
        self.may_block = True
        self.admission: Admission = always_admitted
        self.settings = StreamSettings()

    def admit(self, size: int) -> None:
        """Make sure that the journal can take ``size`` more bytes of facts, an upper bound.

        Raises `CommandError` (MISCONF) when it cannot; nothing may have been mutated yet.
        """
        reason = self.admission(len(self.keyspace.facts.data) + size)
        if reason is not None:
            raise CommandError(MISCONF.format(reason=reason))

    def modified(self, key: bytes, changes: int = 1) -> None:
        """``key`` changed in the sense of WATCH, ``changes`` times in the sense of Redis's dirty
        counter."""
        self.db.touch(key)
        self.keyspace.dirty += changes

    def notify(self, kind: int, event: bytes, key: bytes) -> None:
        """A keyspace event of a class of `headwater.commands.events` happened to ``key``."""
        if self.keyspace.notified & kind:
            self.keyspace.events.append((self.db.index, event, key))

    def stream(self, key: bytes) -> Stream | None:
        """The stream at ``key``, None if there is no such key; WRONGTYPE if it holds another type."""
        value = self.db.lookup(key, self.now_ms)
        if value is None or isinstance(value, Stream):
            return value
        raise CommandError(WRONGTYPE)
