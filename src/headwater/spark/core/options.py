"""The options of ``spark.read.format("headwater")``, checked before anything is connected.

Rule 1. An option that is not known is refused, with the nearest one that is, and so is one that would
        do nothing beside the others: who wrote it expects something of it.
Rule 2. The url may hold a password, so nothing here prints it: see `redacted`.
Rule 3. No pyspark, no redis: `headwater pipeline` checks its file by these before Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from headwater.client.redaction import redacted
from headwater.commands.globs import matches
from headwater.errors import DeclarationError
from headwater.spark.core import option_values as values
from headwater.spark.core.option_values import End, Reader, Start

Codec = Literal["fields", "json", "msgpack", "bytes", "faststream"]
Mode = Literal["permissive", "failfast", "dropmalformed"]


@dataclass(frozen=True)
class GroupOptions:
    """How a query reads as a member of the consumer group ``name``."""

    name: str
    consumer: str = "spark"
    min_idle_ms: int | None = None
    max_deliveries: int | None = None
    dead_letter_stream: str | None = None


@dataclass(frozen=True, repr=False)
class SourceOptions:
    """What one source reads and how; the fields are the options of `OPTIONS`.

    Either ``streams`` names the streams or ``pattern`` is a glob that finds them. ``starting`` and
    ``ending`` are one place for all streams, or a place for each that is named. ``group`` None is log
    mode.
    """

    url: str
    streams: tuple[str, ...] = ()
    pattern: str | None = None
    starting: Start | Mapping[str, Start] = "earliest"
    ending: End | Mapping[str, End] = "latest"
    max_entries_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    ignore_deletes: bool = False
    columns: tuple[str, ...] | None = None
    codec: Codec = "fields"
    include_metadata: bool = False
    mode: Mode = "permissive"
    infer_schema: bool = False
    sampling_entries: int = 1000
    pushdown: bool = False
    archive: str | None = None
    group: GroupOptions | None = None

    def __repr__(self) -> str:
        """The url without its password: this object travels in Spark's plans."""
        what = self.pattern if self.pattern is not None else ",".join(self.streams)
        return f"SourceOptions(url={redacted(self.url)!r}, stream={what!r})"

    @property
    def dead_letter_stream(self) -> str | None:
        """Where the option says that dead letters go."""
        return None if self.group is None else self.group.dead_letter_stream

    def asks_for(self, stream: str) -> bool:
        """Whether ``stream`` is one of those named, or one that the pattern finds."""
        if self.pattern is None:
            return stream in self.streams
        return matches(self.pattern.encode(), stream.encode())

    def start_of(self, stream: str) -> Start:
        """Where reading of ``stream`` begins."""
        if isinstance(self.starting, Mapping):
            return self.starting.get(stream, "earliest")
        return self.starting

    def end_of(self, stream: str) -> End:
        """Where a batch's reading of ``stream`` ends."""
        if isinstance(self.ending, Mapping):
            return self.ending.get(stream, "latest")
        return self.ending


_READERS: Final[dict[str, tuple[str, Reader]]] = {
    "maxEntriesPerTrigger": ("max_entries_per_trigger", values.count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.count),
    "minPartitions": ("min_partitions", values.count),
    "failOnDataLoss": ("fail_on_data_loss", values.flag),
    "ignoreDeletes": ("ignore_deletes", values.flag),
    "columns": ("columns", values.names),
    "codec": ("codec", values.word(*get_args(Codec))),
    "includeMetadata": ("include_metadata", values.flag),
    "mode": ("mode", values.word(*get_args(Mode))),
    "inferSchema": ("infer_schema", values.flag),
    "samplingEntries": ("sampling_entries", values.count),
    "pushdown": ("pushdown", values.flag),
    "archive": ("archive", values.name),
}

_GROUP_READERS: Final[dict[str, tuple[str, Reader]]] = {
    "group": ("name", values.name),
    "consumerPrefix": ("consumer", values.name),
    "minIdleTime": ("min_idle_ms", values.duration_ms),
    "maxDeliveries": ("max_deliveries", values.count),
    "deadLetterStream": ("dead_letter_stream", values.name),
}

PLACES: Final[dict[str, tuple[str, Reader]]] = {
    "startingId": ("starting", values.start),
    "startingTimestamp": ("starting", values.starting_time),
    "endingId": ("ending", values.end),
    "endingTimestamp": ("ending", values.ending_time),
}
"""Where a read begins and ends."""

OPTIONS: Final = ("url", "stream", *PLACES, *_READERS, *_GROUP_READERS)
"""Every option, in the spelling that is printed; Spark compares them without regard to case."""

QUERY: Final = ":hw:query"
"""The name under which offsets of log mode keep the query's own id (log_mode/offsets.py); the option
``stream`` refuses it."""

_NOT_OF_GROUPS: Final = (
    "endingId",
    "endingTimestamp",
    "ignoreDeletes",
    "archive",
    "pushdown",
    "inferSchema",
)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options that Spark, or a pipeline's file, gives as text.

    >>> options = parse_options({"url": "redis://localhost:6379", "stream": "orders"})
    >>> options.streams, options.start_of("orders")
    (('orders',), 'earliest')

    Raises `DeclarationError` naming option, value and remedy.
    """
    texts = values.recognised(given, OPTIONS)
    made: dict[str, Any] = {"url": values.url("url", texts.get("url"))}
    made["streams"], made["pattern"] = values.streams("stream", texts.get("stream"))
    if QUERY in made["streams"]:
        raise DeclarationError(f"stream: {QUERY!r} is a name that offsets keep for themselves")
    for pair in (("startingId", "startingTimestamp"), ("endingId", "endingTimestamp")):
        made |= _places(texts, pair, made["streams"])
    made |= _read(texts, _READERS)
    of_group = _read(texts, _GROUP_READERS)
    _check_together(texts)
    if "samplingEntries" in texts and not made.get("infer_schema"):
        raise DeclarationError(
            "samplingEntries does nothing without inferSchema=true, whose sample it sizes; add that, "
            "or leave it out"
        )
    if of_group.get("dead_letter_stream") in made["streams"]:
        raise DeclarationError(
            f"deadLetterStream: {of_group['dead_letter_stream']!r} is read by this query itself, which would "
            "take its dead letters for new entries; name another stream"
        )
    return SourceOptions(**made, group=GroupOptions(**of_group) if of_group else None)


def _read(texts: Mapping[str, str], readers: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    return {
        field: read(name, texts[name]) for name, (field, read) in readers.items() if name in texts
    }


def _places(
    texts: Mapping[str, str], pair: tuple[str, str], streams: tuple[str, ...]
) -> dict[str, Any]:
    named = [name for name in pair if name in texts]
    if len(named) > 1:
        raise DeclarationError(f"{pair[0]} and {pair[1]} exclude each other: both say one place")
    made: dict[str, Any] = {}
    for name in named:
        field, read = PLACES[name]
        value, each = values.of_each(name, texts[name], read, streams)
        if value is not None or each:
            made[field] = each or value
    return made


def _check_together(texts: Mapping[str, str]) -> None:
    if "group" in texts:
        for name in _NOT_OF_GROUPS:
            if name in texts:
                raise DeclarationError(
                    f"{name} does nothing with group, whose members take what the group has not "
                    "settled; leave one of the two out"
                )
        if "deadLetterStream" in texts and "maxDeliveries" not in texts:
            raise DeclarationError(
                "deadLetterStream does nothing without maxDeliveries, which says how often an entry "
                "may be delivered before it goes there"
            )
    else:
        for name in _GROUP_READERS:
            if name in texts:
                raise DeclarationError(
                    f"{name} says how a member of a consumer group reads, and no group is named: "
                    f'.option("group", "…"), or leave {name} out'
                )
