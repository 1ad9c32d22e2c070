"""Headwater's public errors.

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

    A command raises this error before it changes anything, unless it runs a script.
    """


class NoRoom(CommandError):
    """A write is refused because the journal cannot accept it now. It may be accepted later."""


class ProtocolError(HeadwaterError):
    """A client sent bytes that are not a RESP request. The server replies with the text and closes the
    connection, as Redis does."""


class ConfigError(HeadwaterError):
    """A setting, a url or a client's option is unknown, invalid or not usable here. Names it and the remedy."""


class StoreInUse(HeadwaterError):
    """Another process uses the data directory or archives to the same directory."""


class StoreUnusable(HeadwaterError):
    """A data directory, or the directory for a copy of it, cannot be used. Names the path and the reason."""


class JournalDamaged(HeadwaterError):
    """A file of the store is damaged or missing. Names the file, and for damage the place and what was found.

    Nothing on disk has been changed when this is raised.
    """


class NodePoisoned(HeadwaterError):
    """A write or fsync of the journal failed after commands had run, or an error aborted a change half-way. The
    store answers no further command until it is opened again."""


class ForkedStore(HeadwaterError):
    """An embedded store was used in a forked child of its process. Open it only after the fork, or serve it."""


class Disconnected(HeadwaterError):
    """The store cannot be reached, is still loading its data, or closed the connection."""


class NotSent(Disconnected):
    """Messages were not added, or a scheduled message was not cancelled, because the store could not be reached or
    accepted no writes. Sending the missing messages again adds none of them twice.

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
    """The connection broke while messages were being added or cancelled. The outcome is unknown.

    The remaining messages of the call were not sent. A message with a name (``dedupe=``) can be sent again
    without being added twice. Source: docs/guide/worker.md, publishing.
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
    """A consumer, a stream, an option or the name of an app is wrong. Raised before anything runs, or when the
    declaration does not match the store."""


class DecodeError(HeadwaterError):
    """An entry does not match its message type. Names the field and, if possible, the value (cut at 100
    characters) and the type."""


class PipelineError(HeadwaterError):
    """A pipeline cannot run, because of its file, a table, a checkpoint or a missing package. Names the cause."""


class ExpectationFailed(HeadwaterError):
    """Rows of a pipeline's table violate an expectation whose action is ``fail``."""


class DataLoss(HeadwaterError):
    """Data that Spark needs is gone or damaged: entries of a stream, staged rows, or files. Names the data."""


class JavaMissing(HeadwaterError):
    """No Java that Spark can run on was found. Says how to install one."""


class EncodeError(HeadwaterError):
    """A stream's codec cannot write a message. Names the value, and the field if there is one."""


class ListenError(HeadwaterError):
    """A server, or an endpoint for metrics, cannot listen. Names the address, the reason and the remedy."""


class StoreClosed(HeadwaterError):
    """An embedded store was used after its client was closed or SHUTDOWN ended it."""
