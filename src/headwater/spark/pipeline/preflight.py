"""Checks before Spark starts that the servers are reachable and the streams exist.

Rule. The streams that a source without an archive names must exist, except those that a table has read before: if
      such a stream is missing, the source reports data loss. Use a pattern for a stream that is created later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from headwater.client.redaction import redacted
from headwater.errors import DeclarationError, HeadwaterError, PipelineError
from headwater.spark.core.store import SourceStore
from headwater.spark.pipeline.checkpoints import Checkpoint, streams_in
from headwater.spark.pipeline.declaration.graph import sources_below
from headwater.spark.pipeline.declaration.model import Pipeline, Source
from headwater.spark.pipeline.errors import reason
from headwater.spark.pipeline.lag import opened

_GLOB: Final = re.compile(r"[*?\[]")


def check_sources(pipeline: Pipeline, checkpoints: Mapping[str, Checkpoint]) -> None:
    """Look up every named stream on its server.

    Raises `Disconnected`, `DeclarationError` for a key that is not a stream, and `PipelineError` for a stream
    that does not exist. The errors name the source's key in the file.
    """
    for source in pipeline.sources.values():
        try:
            with opened(source) as store:
                check_source(store, pipeline, source, checkpoints)
        except HeadwaterError as error:
            raise reason(pipeline, f"source.{source.name}", error) from error


def check_source(
    store: SourceStore,
    pipeline: Pipeline,
    source: Source,
    checkpoints: Mapping[str, Checkpoint],
) -> None:
    """Look up the named streams of one source on its server.

    Raises `PipelineError` for a stream that does not exist, and `DeclarationError` for a mistake that creating the
    stream would not correct.
    """
    known = _read_before(pipeline, source, checkpoints)
    may_come = source.waits or store.options.archive is not None
    for stream in store.streams():
        if store.state(stream) is not None or stream in known or may_come:
            continue
        if _GLOB.search(stream):
            raise DeclarationError(
                f"stream: there is no stream {stream!r} at {redacted(store.options.url)}, and a list contains names, not "
                f"patterns: write one pattern alone, like stream = {stream!r}, or a regular expression for "
                "several, like streamsPattern = 'orders|late[.].*'."
            )
        near = get_close_matches(stream, store.some_streams(), n=1)
        raise PipelineError(
            f"stream: there is no stream {stream!r} at {redacted(store.options.url)}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f' Use a pattern for a stream that is created later: "{stream}*".'
        )


def _read_before(
    pipeline: Pipeline, source: Source, checkpoints: Mapping[str, Checkpoint]
) -> set[str]:
    """Return the streams of ``source`` that a table's checkpoint contains."""
    known: set[str] = set()
    for name, checkpoint in checkpoints.items():
        if sources_below(name, pipeline.tables, [source.name]):
            known |= streams_in(checkpoint.committed().get(source.name))
    return known
