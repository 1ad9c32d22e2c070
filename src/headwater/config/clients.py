"""Settings of connections: their number, their timeouts and the memory each may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headwater.common import limits
from headwater.config.kinds import I32, MIB, Integer, Kind, Memory
from headwater.config.setting import AT_START, EmbeddedUse, setting


class OutputLimit(NamedTuple):
    """Limits on a client's unread output, in bytes; 0 means unlimited. A client that exceeds ``hard``, or ``soft``
    for more than ``seconds``, is disconnected."""

    hard: int = 0
    soft: int = 0
    seconds: int = 0


class OutputLimits(NamedTuple):
    """The value of client-output-buffer-limit: a limit for each class of clients, with Redis's defaults.
    Replication is not implemented yet, so ``replica`` has no effect."""

    normal: OutputLimit = OutputLimit()
    replica: OutputLimit = OutputLimit(256 * MIB, 64 * MIB, 60)
    pubsub: OutputLimit = OutputLimit(32 * MIB, 8 * MIB, 60)


_SPELLED = {"normal": "normal", "replica": "slave", "pubsub": "pubsub"}
"""Class of clients → its name in CONFIG GET."""


class ClassLimits(Kind[OutputLimits]):
    """One or more groups of ``class hard soft seconds``. A class that is not named keeps its limits."""

    several = True

    def parse(self, text: str) -> OutputLimits:
        return self.changed(OutputLimits(), text)

    def changed(self, current: OutputLimits, text: str) -> OutputLimits:
        words = text.split()
        if len(words) % 4:
            raise ValueError("Wrong number of arguments in buffer limit configuration.")
        for index in range(0, len(words), 4):
            kind = "replica" if words[index].lower() == "slave" else words[index].lower()
            if kind not in _SPELLED:
                raise ValueError("Invalid client class specified in buffer limit configuration.")
            current = current._replace(**{kind: _output_limit(*words[index + 1 : index + 4])})
        return current

    def spell(self, value: OutputLimits) -> str:
        return " ".join(
            f"{_SPELLED[kind]} {limit.hard} {limit.soft} {limit.seconds}"
            for kind, limit in value._asdict().items()
        )


def _output_limit(hard: str, soft: str, seconds: str) -> OutputLimit:
    try:
        size, period = Memory(), Integer(0, I32)
        return OutputLimit(size.parse(hard), size.parse(soft), period.parse(seconds))
    except ValueError:
        raise ValueError(
            "Error in hard, soft or soft_seconds setting in buffer limit configuration."
        ) from None


@dataclass(kw_only=True)
class ClientConfig:
    """Limits on the number of connections, their timeouts and their memory."""

    maxclients: int = setting(
        limits.MAX_CLIENTS, "Maximum number of connections.", kind=Integer(1, 2**32 - 1)
    )
    timeout: int = setting(
        0, "Seconds after which an idle client is disconnected; 0: never.", kind=Integer(0, I32)
    )
    tcp_keepalive: int = setting(
        300,
        "Seconds of silence after which a peer is probed, then every third of that; 0: never.",
        kind=Integer(0, I32),
    )
    tcp_backlog: int = setting(
        511,
        "Maximum number of connections that wait to be accepted.",
        kind=Integer(0, I32),
        fixed_after_start=AT_START,
    )
    proto_max_bulk_len: int = setting(
        limits.MAX_BULK_BYTES,
        "Maximum length of an argument of a command.",
        kind=Memory(MIB),
        embedded=EmbeddedUse.ALWAYS,
    )
    client_query_buffer_limit: int = setting(
        limits.MAX_QUERY_BUFFER_BYTES,
        "Maximum size of one client's input that is not executed yet.",
        kind=Memory(MIB),
    )
    client_output_buffer_limit: OutputLimits = setting(
        OutputLimits(),
        "Maximum unread output of a client: class, hard limit, soft limit, seconds for which the soft "
        "limit may be exceeded.",
        kind=ClassLimits(),
        embedded=EmbeddedUse.ALWAYS,
    )

    @property
    def output_ahead_bytes(self) -> int:
        """Size of a client's queued replies, in bytes, above which its further requests wait."""
        return max(limits.MAX_OUTPUT_AHEAD_BYTES, *self.client_output_buffer_limit.normal[:2])

    def output_limit(self, *, listening: bool) -> OutputLimit:
        """Return the output limit of the class ``pubsub`` if the client is subscribed to channels (``listening``),
        otherwise that of the class ``normal``."""
        classes = self.client_output_buffer_limit
        return classes.pubsub if listening else classes.normal
