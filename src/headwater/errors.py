"""Every error that a caller of Headwater can meet.

Each says what was wrong, with what, and what to do. Errors of the wire (`CommandError`) carry the
exact text that Redis would send, because clients match on it.
"""

from __future__ import annotations

from collections.abc import Sequence


class HeadwaterError(Exception):
    """The base of all errors that Headwater reports.

    Errors of redis-py, such as ``redis.ConnectionError``, and of handlers are not among them.
    """


class CommandError(HeadwaterError):
    """A command is refused; its text is the error reply, code first (``ERR syntax error``).

    Raised only while a command chooses, that is before its first mutator, so nothing has changed.
    """


class NoRoom(CommandError):
    """A write is refused because the journal cannot take it now; later it may be taken."""


class ProtocolError(HeadwaterError):
    """A client sent bytes that are not a RESP request. The server replies with the text and closes the
    connection, as Redis does."""


class ConfigError(HeadwaterError):
    """A setting is unknown or has an invalid value; names file, line, key and remedy."""


class StoreInUse(HeadwaterError):
    """Another process holds the data directory."""


class StoreUnusable(HeadwaterError):
    """The data directory cannot be read or written; names the path and the system's reason."""


class JournalDamaged(HeadwaterError):
    """A record before the tail is damaged; names file, offset and what was found there.

    Nothing on disk is changed when this is raised.
    """


class NodePoisoned(HeadwaterError):
    """A write or fsync of the journal failed after commands had run. The store answers nothing more until it
    is opened again."""


class ForkedStore(HeadwaterError):
    """An embedded store was used in a child process after a fork. Open it again there."""


class Disconnected(HeadwaterError):
    """The store went away and did not come back within the time allowed."""


class NotSent(Disconnected):
    """Messages were not added, because the store could not be reached or took no writes. They may be sent
    again: nothing is added twice.

    Source: docs/guide/worker.md, publishing.
    """

    def __init__(
        self, text: str, *, added: Sequence[str] = (), missing: Sequence[int] = ()
    ) -> None:
        super().__init__(text)
        self.added = list(added)
        """The ids of messages of the same call that were added."""
        self.missing = list(missing)
        """The indexes in the call, from 0 on, of the messages that were not added."""


class OutcomeUnknown(Disconnected):
    """The connection broke after messages were sent, so the store may or may not have added them.

    The rest of the call was not sent. A message with a name (``dedupe=``) can be sent again without being added
    twice. Source: docs/guide/worker.md, publishing.
    """

    def __init__(self, text: str, *, added: Sequence[str] = (), unknown: int = 0) -> None:
        super().__init__(text)
        self.added = list(added)
        """The ids of the messages that were added."""
        self.unknown = unknown
        """How many messages may have been added."""


class NotReplicated(HeadwaterError):
    """A message was added, but too few replicas confirmed it within five seconds. A failover could lose it.

    Source: the command page of WAIT.
    """

    def __init__(self, text: str, *, id: str = "", replicas: int = 0) -> None:
        super().__init__(text)
        self.id = id
        """The id of the entry."""
        self.replicas = replicas
        """How many replicas confirmed it."""


class DeclarationError(HeadwaterError):
    """A consumer, a stream or an option is declared wrongly. Raised where it is declared, before anything
    runs."""


class DecodeError(HeadwaterError):
    """An entry does not fit its message type; names field, value (cut at 100 characters), type."""


class PipelineError(HeadwaterError):
    """A pipeline file is wrong; names file, key and remedy."""


class ExpectationFailed(HeadwaterError):
    """Rows of a pipeline's table violate an expectation whose action is ``fail``."""


class DataLoss(HeadwaterError):
    """Entries that Spark needs were deleted or trimmed; names stream, range and counts."""


class JavaMissing(HeadwaterError):
    """No Java that Spark can run on was found; says how to get it."""


class EncodeError(HeadwaterError):
    """A message cannot be written by its stream's codec; names field and value."""


class ListenError(HeadwaterError):
    """A server cannot listen where it was told to; names the address, the reason and the remedy."""


class StoreClosed(HeadwaterError):
    """An embedded store was used after its client was closed or SHUTDOWN ended it."""
