"""The options of ``spark.read.format("headwater")``, checked before any connection is made.

Rule 1. An unknown option raises an error that names the nearest known one. Options that exclude each other, and
        an option without another that it needs, raise an error too, because their author expects an effect.
Rule 2. The url may contain a password, so no message here shows the password: see `redacted`.
Rule 3. This module imports neither pyspark nor redis: `headwater pipeline` uses it before Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from headwater.client.redaction import redacted
from headwater.errors import DeclarationError
from headwater.spark.core import option_values as values
from headwater.spark.core.option_values import End, Reader, Start
from headwater.spark.core.patterns import StreamPattern, regular

Codec = Literal["fields", "json", "msgpack", "bytes", "faststream"]
Mode = Literal["permissive", "failfast", "dropmalformed"]


@dataclass(frozen=True)
class GroupOptions:
    """Options of a query that reads as a member of the consumer group ``name``."""

    name: str
    consumer: str = "spark"
    min_idle_ms: int | None = None
    max_deliveries: int | None = None
    dead_letter_stream: str | None = None


@dataclass(frozen=True, repr=False)
class SourceOptions:
    """The parsed options of one source; the fields are the options of `OPTIONS`.

    Either ``streams`` names the streams, or ``pattern`` matches them. ``starting`` and ``ending`` are one
    place for all streams, or a mapping of stream to place, in which streams with the default place may be
    missing. If ``group`` is None, the source reads in log mode.
    """

    url: str
    streams: tuple[str, ...] = ()
    pattern: StreamPattern | None = None
    starting: Start | Mapping[str, Start] = "earliest"
    ending: End | Mapping[str, End] = "latest"
    max_entries_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    parallelism: int | None = None
    max_entries_per_partition: int | None = None
    fail_on_data_loss: bool = True
    ignore_deletes: bool = False
    columns: tuple[str, ...] | None = None
    codec: Codec = "fields"
    include_metadata: bool = False
    include_entry: bool = False
    mode: Mode = "permissive"
    timestamp_formats: tuple[tuple[str, str], ...] = ()
    infer_schema: bool = False
    sampling_entries: int = 1000
    pushdown: bool = False
    archive: str | None = None
    group: GroupOptions | None = None

    def __repr__(self) -> str:
        """Show the url without its password: Spark's plans contain this object."""
        return f"SourceOptions(url={redacted(self.url)!r}, stream={self.asked!r})"

    @property
    def asked(self) -> str:
        """The pattern or the names of the streams, for error messages."""
        return ", ".join(self.streams) if self.pattern is None else str(self.pattern)

    @property
    def dead_letter_stream(self) -> str | None:
        """The stream for dead letters; None if the options do not name one."""
        return None if self.group is None else self.group.dead_letter_stream

    def includes(self, stream: str) -> bool:
        """Return whether ``stream`` is named or matches the pattern."""
        if self.pattern is None:
            return stream in self.streams
        return self.pattern.matches(stream)

    def start_of(self, stream: str) -> Start:
        """Return the place at which reading of ``stream`` begins."""
        if isinstance(self.starting, Mapping):
            return self.starting.get(stream, "earliest")
        return self.starting

    def end_of(self, stream: str) -> End:
        """Return the place at which a batch's reading of ``stream`` ends."""
        if isinstance(self.ending, Mapping):
            return self.ending.get(stream, "latest")
        return self.ending


_READERS: Final[dict[str, tuple[str, Reader]]] = {
    "maxEntriesPerTrigger": ("max_entries_per_trigger", values.count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.count),
    "minPartitions": ("min_partitions", values.count),
    "parallelism": ("parallelism", values.count),
    "maxEntriesPerPartition": ("max_entries_per_partition", values.count),
    "failOnDataLoss": ("fail_on_data_loss", values.flag),
    "ignoreDeletes": ("ignore_deletes", values.flag),
    "columns": ("columns", values.names),
    "codec": ("codec", values.word(*get_args(Codec))),
    "includeMetadata": ("include_metadata", values.flag),
    "includeEntry": ("include_entry", values.flag),
    "mode": ("mode", values.word(*get_args(Mode))),
    "timestampFormat": ("timestamp_formats", values.time_formats),
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
"""The options that set the beginning or the end of a read."""

OPTIONS: Final = ("url", "stream", "streamsPattern", *PLACES, *_READERS, *_GROUP_READERS)
"""All options, spelled as in error messages. Their case does not matter."""

QUERY: Final = ":hw:query"
"""The name under which offsets of log mode store the query's own id (log_mode/offsets.py). The option
``stream`` does not accept it."""

REMOVED: Final = ":hw:removed"
"""The name under which offsets store the positions of streams whose key is gone (log_mode/removed.py)."""

_NOT_OF_GROUPS: Final = (
    "endingId",
    "endingTimestamp",
    "ignoreDeletes",
    "archive",
    "pushdown",
    "inferSchema",
)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse options that Spark or a pipeline's file gives as strings.

    >>> options = parse_options({"url": "redis://localhost:6379", "stream": "orders"})
    >>> options.streams, options.start_of("orders")
    (('orders',), 'earliest')

    Raises `DeclarationError`, which names the option, its value and the remedy.
    """
    texts = values.recognised(given, OPTIONS)
    made: dict[str, Any] = {"url": values.url("url", texts.get("url"))}
    made["streams"], made["pattern"] = _streams(texts)
    for name in (QUERY, REMOVED):
        if name in made["streams"]:
            raise DeclarationError(f"stream: {name!r} is a reserved name")
    for pair in (("startingId", "startingTimestamp"), ("endingId", "endingTimestamp")):
        made |= _places(texts, pair, made["streams"])
    made |= _read(texts, _READERS)
    of_group = _read(texts, _GROUP_READERS)
    _check_together(texts)
    if "samplingEntries" in texts and not made.get("infer_schema"):
        raise DeclarationError(
            "samplingEntries has no effect without inferSchema=true: it is the size of that option's "
            "sample; add inferSchema=true, or remove samplingEntries"
        )
    if "timestampFormat" in texts and made.get("infer_schema"):
        raise DeclarationError(
            "timestampFormat has no effect with inferSchema, which chooses the types itself; give a schema"
        )
    if of_group.get("dead_letter_stream") in made["streams"]:
        raise DeclarationError(
            f"deadLetterStream: this query reads {of_group['dead_letter_stream']!r} itself, so it would "
            "read its dead letters as new entries; name another stream"
        )
    return SourceOptions(**made, group=GroupOptions(**of_group) if of_group else None)


def _streams(texts: Mapping[str, str]) -> tuple[tuple[str, ...], StreamPattern | None]:
    if "streamsPattern" not in texts:
        return values.streams("stream", texts.get("stream"))
    if "stream" in texts:
        raise DeclarationError(
            "stream and streamsPattern exclude each other: both say which streams are read"
        )
    return (), regular("streamsPattern", texts["streamsPattern"])


def _read(texts: Mapping[str, str], readers: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    return {
        field: read(name, texts[name]) for name, (field, read) in readers.items() if name in texts
    }


def _places(
    texts: Mapping[str, str], pair: tuple[str, str], streams: tuple[str, ...]
) -> dict[str, Any]:
    named = [name for name in pair if name in texts]
    if len(named) > 1:
        raise DeclarationError(
            f"{pair[0]} and {pair[1]} exclude each other: both name the same place"
        )
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
                    f"{name} has no effect with group, whose members take what the group has not "
                    "settled; remove one of the two"
                )
        if "deadLetterStream" in texts and "maxDeliveries" not in texts:
            raise DeclarationError(
                "deadLetterStream has no effect without maxDeliveries, which says how often an entry "
                "is delivered before it becomes a dead letter"
            )
    else:
        for name in _GROUP_READERS:
            if name in texts:
                raise DeclarationError(
                    f"{name} configures a member of a consumer group, but no group is named: "
                    f'.option("group", "…"), or remove {name}'
                )
