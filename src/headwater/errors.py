"""All errors that a caller of Headwater can get.

Each message names the problem, its place, and the solution. Errors of the wire (`CommandError`) have
exactly the text that Redis sends, because clients match on it.
"""

from __future__ import annotations

from collections.abc import Sequence


class HeadwaterError(Exception):
    """The base class of all errors that Headwater raises.

    Errors of redis-py, such as ``redis.ConnectionError``, and of handlers do not derive from it.
    """


class CommandError(HeadwaterError):
    """A command is refused. The text is the error reply, code first (``ERR syntax error``).

    A command raises it only before its first mutator, so nothing has changed.
    """


class NoRoom(CommandError):
    """A write is refused because the journal cannot accept it now. It may be accepted later."""


class ProtocolError(HeadwaterError):
    """A client sent bytes that are not a RESP request. The server replies with the text and closes the
    connection, as Redis does."""


class ConfigError(HeadwaterError):
    """A setting is unknown or has an invalid value. Names the file, the line, the key and the remedy."""


class StoreInUse(HeadwaterError):
    """Another process uses the data directory."""


class StoreUnusable(HeadwaterError):
    """The data directory cannot be used. Names the path and the reason."""


class JournalDamaged(HeadwaterError):
    """A record before the journal's tail is damaged. Names the file, the offset and the bytes found there.

    Nothing on disk has been changed when this is raised.
    """


class NodePoisoned(HeadwaterError):
    """A write or fsync of the journal failed after commands had run. The store answers no further command
    until it is opened again."""


class ForkedStore(HeadwaterError):
    """An embedded store was used in a child process after a fork. Open the store again in the child."""


class Disconnected(HeadwaterError):
    """The connection to the store broke and could not be restored within the time allowed."""


class NotSent(Disconnected):
    """Messages were not added because the store could not be reached or accepted no writes. They can be
    sent again: no message is added twice.

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

    The rest of the call was not sent. A message with a name (``dedupe=``) can be sent again without being
    added twice. Source: docs/guide/worker.md, publishing.
    """

    def __init__(self, text: str, *, added: Sequence[str] = (), unknown: int = 0) -> None:
        super().__init__(text)
        self.added = list(added)
        """The ids of the messages that were added."""
        self.unknown = unknown
        """Number of messages that may have been added."""


class NotReplicated(HeadwaterError):
    """A message was added, but too few replicas confirmed it within five seconds. A failover could lose it.

    Source: the command page of WAIT.
    """

    def __init__(self, text: str, *, id: str = "", replicas: int = 0) -> None:
        super().__init__(text)
        self.id = id
        """The id of the entry; of the last one that was added, if several were sent."""
        self.added = [id] if id else []
        """The ids of all entries of the call that were added."""
        self.missing: list[int] = []
        """The indexes in the call, from 0 on, of the messages that were not sent."""
        self.replicas = replicas
        """Number of replicas that confirmed the message."""


class DeclarationError(HeadwaterError):
    """A consumer, a stream or an option is declared wrongly. Raised by the declaration, before anything
    runs."""


class DecodeError(HeadwaterError):
    """An entry does not match its message type. Names the field, the value (cut at 100 characters), the
    type."""


class PipelineError(HeadwaterError):
    """A pipeline file is wrong. Names the file, the key and the remedy."""


class ExpectationFailed(HeadwaterError):
    """Rows of a pipeline's table violate an expectation whose action is ``fail``."""


class DataLoss(HeadwaterError):
    """Entries that Spark needs were deleted or trimmed. Names the stream, the range and the counts."""


class JavaMissing(HeadwaterError):
    """No Java that Spark can run on was found. Says how to install one."""


class EncodeError(HeadwaterError):
    """A stream's codec cannot write a message. Names the field and the value."""


class ListenError(HeadwaterError):
    """A server cannot listen on the configured address. Names the address, the reason and the remedy."""


class StoreClosed(HeadwaterError):
    """An embedded store was used after its client was closed or SHUTDOWN ended it."""
