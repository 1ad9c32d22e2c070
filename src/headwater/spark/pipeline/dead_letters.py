"""A pipeline's dead letters: counts them, and replays them to the streams from which they came
(``headwater pipeline replay --dead``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.client.redaction import redacted
from headwater.common.model import MIN_ID
from headwater.errors import Disconnected, HeadwaterError, PipelineError
from headwater.groups.protocol.operation import Operation, run
from headwater.groups.settling import dead_letters
from headwater.groups.settling.replay import DONE, Replayed
from headwater.groups.settling.replay import replay as give_back
from headwater.messages.keys import dead_letter_stream
from headwater.spark.core.options import parse_options
from headwater.spark.core.store import SourceStore
from headwater.spark.pipeline.declaration.model import Pipeline, Source
from headwater.spark.pipeline.declaration.sources import dead_streams
from headwater.spark.pipeline.errors import reason
from headwater.spark.pipeline.lag import opened

if TYPE_CHECKING:
    from headwater.messages.dead import DeadLetter


def replay(
    pipeline: Pipeline,
    *,
    source: str | None = None,
    ids: Sequence[str] = (),
    all_groups: bool = False,
) -> dict[str, int]:
    """Deliver the entries of dead letters to their groups again, and remove the records.

    Replays the records with ``ids``, by default all current records, of ``source``, by default of all sources.
    With ``all_groups``, an entry that is gone from its stream is added again even if other groups get it too.
    Returns the number of replayed records by dead-letter stream. Records added during the replay are left.
    Raises `PipelineError` for an unknown source or id, and for records that could not be replayed (see
    `headwater.groups.settling.replay`).
    """
    done: dict[str, int] = {}
    found: set[str] = set()
    refused: list[Replayed] = []
    for one in _sources(pipeline, source):
        try:
            with opened(one) as store:
                for stream in existing_dead_streams(one):
                    if stream not in done:
                        outcomes = _give_back(store, stream, set(ids), all_groups=all_groups)
                        done[stream] = sum(one.how in DONE for one in outcomes)
                        found |= {one.letter.id for one in outcomes}
                        refused += [one for one in outcomes if one.reason]
        except HeadwaterError as error:
            raise reason(pipeline, f"source.{one.name}", error) from error
    missing = sorted(set(ids) - found)
    if missing:
        raise PipelineError(
            f"{pipeline.file}: no dead-letter stream has {', '.join(missing)}; searched: "
            f"{', '.join(done) or 'none'} (headwater dead list STREAM)"
        )
    if refused:
        first = refused[0]
        raise PipelineError(
            f"{pipeline.file}: {sum(done.values())} replayed, {len(refused)} not. "
            f"{first.letter.id}: {first.reason}"
        )
    return done


def dead_letter_counts(pipeline: Pipeline, sources: Iterable[Source]) -> dict[str, int]:
    """Return the number of records in each dead-letter stream of ``sources``, by the stream's name."""
    found: dict[str, int] = {}
    for source in sources:
        if source.waits:
            continue  # the pipeline reads these dead-letter streams itself
        try:
            with opened(source) as store:
                for stream in existing_dead_streams(source):
                    state = store.state(stream)
                    if state is not None:
                        found[stream] = state.length
        except HeadwaterError as error:
            raise reason(pipeline, f"source.{source.name}", error) from error
    return found


def existing_dead_streams(source: Source) -> list[str]:
    """Return the dead-letter streams of a source's streams; those of a pattern are looked up on the server."""
    options = parse_options(source.options)
    if options.pattern is not None and options.pattern.regular and not options.dead_letter_stream:
        with opened(source) as store:
            dead = [dead_letter_stream(stream) for stream in store.streams()]
            return [stream for stream in dead if store.state(stream) is not None]
    names = dead_streams(options)
    if options.pattern is None or options.dead_letter_stream is not None:
        return names
    looked_up = source._replace(
        options={name: text for name, text in source.options.items() if name.lower() == "url"}
        | {"stream": names[0]}
    )
    with opened(looked_up) as store:
        return store.streams()


def _sources(pipeline: Pipeline, name: str | None) -> list[Source]:
    declared = [source for source in pipeline.sources.values() if not source.waits]
    if name is None:
        return declared
    if name not in {source.name for source in declared}:
        raise PipelineError(
            f"{pipeline.file}: there is no source {name!r}; sources are "
            f"{', '.join(source.name for source in declared)}"
        )
    return [pipeline.sources[name]]


def _give_back(
    store: SourceStore, stream: str, ids: set[str], *, all_groups: bool
) -> list[Replayed]:
    """Replay the records with ``ids``, or all current ones if ``ids`` is empty, page by page.

    Records that are added during the replay stay, because their ids are above the last id.
    """
    outcomes: list[Replayed] = []
    state = store.state(stream)
    last = state.last_id if state is not None else MIN_ID
    after = ""
    while page := _do(store, dead_letters.page(stream, after=after, until=str(last))):
        letters: list[DeadLetter] = [one for one in page if not ids or one.id in ids]
        outcomes += _do(store, give_back(stream, letters, all_groups=all_groups))
        after = page[-1].id
    return outcomes


def _do(store: SourceStore, operation: Operation[Any]) -> Any:
    """Run an operation without a second attempt: a replay whose reply was lost may have been executed."""
    import redis

    try:
        return run(store.client, operation)
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise Disconnected(
            f"cannot reach the store at {redacted(store.options.url)}: {error}"
        ) from None
