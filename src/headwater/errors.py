"""Every error that a caller of Headwater can meet.

Each says what was wrong, with what, and what to do. Errors of the wire (`CommandError`) carry the
exact text that Redis would send, because clients match on it.
"""

from __future__ import annotations

from collections.abc import Sequence


class HeadwaterError(Exception):
    """The root: ``except HeadwaterError`` catches whatever Headwater itself reports."""


class CommandError(HeadwaterError):
    """A command is refused; its text is the error reply, code first (``ERR syntax error``).

    Raised only while a command chooses, that is before its first mutator, so nothing has changed.
    """


class NoRoom(CommandError):
    """A write is refused because the journal cannot take it now; later it may be taken."""


class ProtocolError(HeadwaterError):
    """Bytes that are no RESP request. The connection gets the text and is closed, as in Redis."""


class ConfigError(HeadwaterError):
    """A setting is unknown or has a value that it cannot take; names file, line, key and remedy."""


class StoreInUse(HeadwaterError):
    """Another process holds the data directory."""


class StoreUnusable(HeadwaterError):
    """The data directory cannot be read or written; names the path and the system's reason."""


class JournalDamaged(HeadwaterError):
    """A record before the tail is damaged; names file, offset and what was found there.

    Nothing on disk is changed when this is raised.
    """


class NodePoisoned(HeadwaterError):
    """A write or fsync failed after commands had run: nothing more is answered until restart."""


class ForkedStore(HeadwaterError):
    """An embedded store was used in a child process after fork; open it again there."""


class Disconnected(HeadwaterError):
    """The store went away and did not come back within the time allowed."""


class NotSent(Disconnected):
    """The store could not be reached, or took no writes: messages were not added, and may be sent again.

    ``added`` holds the ids of those messages of the same call that were added, ``missing`` the places
    in the call, from 0 on, of those that were not.
    """

    def __init__(
        self, text: str, *, added: Sequence[str] = (), missing: Sequence[int] = ()
    ) -> None:
        super().__init__(text)
        self.added = list(added)
        self.missing = list(missing)


class OutcomeUnknown(Disconnected):
    """The connection broke after messages were sent: the store may have added them, or not.

    ``added`` holds the ids of the messages that were certainly added, ``unknown`` is the number of
    those that may have been. The rest of the call was not sent.
    """

    def __init__(self, text: str, *, added: Sequence[str] = (), unknown: int = 0) -> None:
        super().__init__(text)
        self.added = list(added)
        self.unknown = unknown


class NotReplicated(HeadwaterError):
    """A message was added, as entry ``id``, but only ``replicas`` replicas confirmed it in time."""

    def __init__(self, text: str, *, id: str = "", replicas: int = 0) -> None:
        super().__init__(text)
        self.id = id
        self.replicas = replicas


class DeclarationError(HeadwaterError):
    """A consumer, stream or pipeline is declared wrongly; raised at the declaration."""


class DecodeError(HeadwaterError):
    """An entry does not fit its message type; names field, value (cut at 100 characters), type."""


class PipelineError(HeadwaterError):
    """A pipeline file is wrong; names file, key and remedy."""


class ExpectationFailed(HeadwaterError):
    """Rows of a pipeline's table do not fulfil what it declares with the action ``fail``."""


class DataLoss(HeadwaterError):
    """Entries that a reader was to return are gone; names stream, range and counts."""


class JavaMissing(HeadwaterError):
    """No Java that Spark can run on was found; says how to get one."""


class EncodeError(HeadwaterError):
    """A message cannot be written by its stream's codec; names field and value."""


class ListenError(HeadwaterError):
    """A server cannot listen where it was told to; names the address, the reason and the remedy."""


class StoreClosed(HeadwaterError):
    """An embedded store was used after its client was closed, or after SHUTDOWN."""
