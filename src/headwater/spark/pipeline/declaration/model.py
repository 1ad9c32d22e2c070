"""The contents of a declaration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headwater.client.redaction import redacted
from headwater.spark.pipeline.sinks.registry import SINKS, Mode

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Format = Literal["parquet", "csv", "jdbc"]
Action = Literal["keep", "drop", "fail", "quarantine"]


class Source(NamedTuple):
    """A stream, with the options of ``spark.readStream.format("headwater")``.

    ``schema`` is None for the source's default columns. If ``waits`` is true, the stream need not exist yet: it is
    a dead-letter stream, which exists only after the first dead letter.
    """

    name: str
    options: dict[str, str]
    schema: StructType | None
    waits: bool = False

    def __repr__(self) -> str:
        """Omit the url, which may contain a password."""
        return f"Source({self.name!r}, stream={self.options.get('stream')!r})"


class Input(NamedTuple):
    """A static table; ``options`` are those of Spark's reader for its format.

    ``path`` is None if the options name what to read (jdbc). ``schema`` is None if Spark infers the columns.
    """

    name: str
    path: Path | None
    format: Format
    schema: StructType | None
    options: dict[str, str]

    def __repr__(self) -> str:
        """Omit the options, which may contain a password."""
        return f"Input({self.name!r}, {self.format})"


class Expectation(NamedTuple):
    """A condition on every row of a table, and the action for a row that violates the condition."""

    name: str
    predicate: str
    action: Action


class Watermark(NamedTuple):
    """The maximum delay of rows, by their ``column``. ``of`` is a source or table; None means all with that column."""

    column: str
    delay: str
    of: str | None


class Target(NamedTuple):
    """The destination of a table: the keys of its sink."""

    sink: str
    path: Path | None = None
    url: str | None = None
    stream: str | None = None
    key: tuple[str, ...] = ()
    checkpoint: Path | None = None
    options: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __repr__(self) -> str:
        """Show the target without credentials."""
        if self.path is not None:
            return f"{self.sink} {self.path}"
        if self.stream is not None:
            return f"{self.sink} {self.stream}" + (f" at {redacted(self.url)}" if self.url else "")
        return self.sink


class Table(NamedTuple):
    """A table that the pipeline makes; ``reads`` are the names in its SQL."""

    name: str
    mode: Mode
    sql: str
    target: Target
    partition_by: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    quarantine: Path | None = None

    @property
    def path(self) -> Path | None:
        """The table's directory; None if its sink does not have one."""
        return self.target.path

    @property
    def streams(self) -> bool:
        """True if a streaming query makes the table."""
        return self.mode != "complete"

    @property
    def has_log(self) -> bool:
        """True if other append and update tables read this table from the log of its commits (table_log/)."""
        return self.mode == "append" and SINKS[self.target.sink].has_log


ZONE: Final = "spark.sql.session.timeZone"

FORGOTTEN_AFTER_MS: Final = 8 * 86_400_000
"""The default of ``forget_queries_after`` in milliseconds: more than a week, because some queries run once a week. A
forgotten query can still read trimmed entries from the archive."""


class Archive(NamedTuple):
    """The sources to archive, and the archive's directory.

    Entries younger than ``keep_ms`` stay in the stream; if ``trim`` is false, all entries stay. Queries that have
    not been seen for ``forget_queries_after_ms`` do not prevent trimming; if that is None, every query does.
    """

    path: Path
    sources: tuple[Source, ...]
    trim: bool = True
    keep_ms: int = 0
    forget_queries_after_ms: int | None = FORGOTTEN_AFTER_MS


class Pipeline(NamedTuple):
    """The contents of a pipeline's file; `headwater.spark.pipeline.load` returns it."""

    file: Path
    """The file that was read."""
    sources: dict[str, Source]
    inputs: dict[str, Input]
    tables: dict[str, Table]
    """The tables by name, in the order in which they can be made."""
    interval: float | None
    """Seconds between batches; None for the trigger available-now."""
    master: str | None
    """Spark's master; None for the default."""
    app: str
    """The name that Spark shows."""
    conf: dict[str, str]
    archive: Archive | None = None
    secrets: frozenset[str] = frozenset()
    """Values from the environment, which must not be shown."""

    def __repr__(self) -> str:
        """Omit settings and secrets."""
        return f"Pipeline({str(self.file)!r}, tables={list(self.tables)})"

    @property
    def zone(self) -> str:
        """The time zone of the pipeline's sessions, in which SQL computes days and hours."""
        return self.conf.get(ZONE, "UTC")

    @property
    def logged(self) -> frozenset[str]:
        """The names of the tables that have a log of commits."""
        return frozenset(name for name, table in self.tables.items() if table.has_log)

    def shown(self, text: str) -> str:
        """Return ``text`` without values from the environment, except the host and path of a url."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if secret:
                text = text.replace(secret, redacted(secret) if "://" in secret else "***")
        return text
