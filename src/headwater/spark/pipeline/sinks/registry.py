"""The registry of sinks: the modes and keys of each. Declarations are checked against `SINKS` before Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Mode = Literal["append", "complete", "update"]


@dataclass(frozen=True)
class SinkKind:
    """The modes and keys that a declaration may contain for a sink.

    ``required`` and ``optional`` are keys of a table: ``path``, ``url``, ``stream``, ``partition_by``,
    ``key``, ``checkpoint`` and ``options``.
    """

    modes: tuple[Mode, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    readable: bool = True
    """True if tables of mode complete can read the sink's tables."""
    has_log: bool = False
    """True if the sink's append tables have a log of commits from which other tables can read."""


SINKS: Final[Mapping[str, SinkKind]] = {
    "parquet": SinkKind(("append", "complete"), ("path",), ("partition_by",), has_log=True),
    "delta": SinkKind(
        ("append", "complete", "update"),
        ("path",),
        ("partition_by", "key", "checkpoint"),
        has_log=True,
    ),
    "stream": SinkKind(("append",), ("url", "stream", "checkpoint"), ("options",), readable=False),
    "console": SinkKind(("append",), ("checkpoint",), ("options",), readable=False),
}
"""The sinks by their name in a declaration. Mode update requires ``key``, and other modes do not allow it.
``checkpoint`` is the directory of Spark's checkpoint. For parquet and delta it is inside the table,
``<path>/_headwater/checkpoint``, unless a delta table sets another directory."""
