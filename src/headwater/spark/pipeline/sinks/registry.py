"""The registry of sinks: the modes and keys of each, and functions that create them by name.

Declarations are checked against `SINKS` before Spark starts. A run creates its sinks with `append_sink` and
`complete_sink`. Each sink is a module of its own, imported when such a sink is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from headwater.spark.pipeline.sinks import AppendSink, CompleteSink

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
    """True if tables of mode complete can read it."""
    has_log: bool = False
    """True if a table of mode append has a log of its commits, which other tables can follow."""


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
"""The sinks by their name in a declaration. ``key`` is required for mode update, and allowed only for it.
``checkpoint`` is the directory of Spark's checkpoint. For parquet and delta it is inside the table,
``<path>/_headwater/checkpoint``, unless a delta table sets another."""


def append_sink(
    *,
    name: str,
    mode: Mode,
    sink: str,
    path: Path | None = None,
    url: str | None = None,
    stream: str | None = None,
    partition_by: tuple[str, ...] = (),
    key: tuple[str, ...] = (),
    checkpoint: Path | None = None,
    options: Mapping[str, str] | None = None,
) -> AppendSink:
    """Create the sink of a streaming table, of mode append or update.

    ``options`` are the sink's own: those of ``format("headwater")`` for a stream (``codec``, ``maxlen``),
    ``rows`` for a console.
    """
    kind = SINKS[sink]
    assert mode in kind.modes, (sink, mode)
    given: dict[str, Any] = {
        "path": path,
        "url": url,
        "stream": stream,
        "checkpoint": checkpoint,
    }
    assert all(given[required] is not None for required in kind.required), (sink, kind.required)
    if sink == "parquet":
        from headwater.spark.pipeline.sinks.parquet import AppendTable

        assert path is not None
        return AppendTable(path, partition_by)
    if sink == "delta":
        from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaUpdate

        assert path is not None
        if mode == "update":
            return DeltaUpdate(path, key, partition_by=partition_by, checkpoint=checkpoint)
        return DeltaAppend(path, partition_by=partition_by, checkpoint=checkpoint)
    if sink == "stream":
        from headwater.spark.pipeline.sinks.stream import StreamTable

        assert url is not None
        assert stream is not None
        assert checkpoint is not None
        return StreamTable(url, stream, checkpoint=checkpoint, options=options or {})
    from headwater.spark.pipeline.sinks.console import Console

    assert checkpoint is not None
    return Console(name, checkpoint=checkpoint, options=options or {})


def complete_sink(*, sink: str, path: Path, partition_by: tuple[str, ...] = ()) -> CompleteSink:
    """Create the sink of a table of mode complete."""
    assert "complete" in SINKS[sink].modes, sink
    if sink == "delta":
        from headwater.spark.pipeline.sinks.delta import DeltaComplete

        return DeltaComplete(path, partition_by=partition_by)
    from headwater.spark.pipeline.sinks.parquet import CompleteTable

    return CompleteTable(path, partition_by)
