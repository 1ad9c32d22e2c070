"""A pipeline's file, ``orders.toml``, read and checked in full before Spark starts.

    [source.orders]
    url = "${ORDERS_URL}"
    stream = "orders"
    schema = "order_id bigint, item string, price decimal(10, 2)"

    [input.items]
    path = "items.csv"

    [table.sales]
    mode = "append"
    sql = "SELECT o.*, i.category FROM orders o LEFT JOIN items i USING (item)"
    path = "tables/sales"
    partition_by = ["category"]

    [[table.sales.expect]]
    name = "price_is_known"
    predicate = "price IS NOT NULL"
    action = "quarantine"

    [table.by_category]
    mode = "complete"
    sql = "SELECT category, sum(price) AS sum FROM sales GROUP BY category"
    path = "tables/by_category"

Rule 1. Every mistake is told at once, each with the key it stands at and what would be right.
Rule 2. ``${NAME}`` is taken from the environment, everywhere but in SQL: a url's password belongs
        in no file. What came from there is shown nowhere.
Rule 3. Paths are relative to the file, so a pipeline runs alike from any directory.

The sections are read by reading.py, sources.py, tables.py and archiving.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headwater.client.redaction import redacted
from headwater.errors import PipelineError
from headwater.spark.pipeline.checks import override

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Mode = Literal["append", "complete", "update"]
Format = Literal["parquet", "csv", "jdbc"]
Action = Literal["keep", "drop", "fail", "quarantine"]


class Source(NamedTuple):
    """A stream, with the options of ``spark.readStream.format("headwater")``.

    ``waits`` is set where nobody named the stream: it need not be there yet.
    """

    name: str
    options: dict[str, str]
    schema: StructType | None
    waits: bool = False

    def __repr__(self) -> str:
        """Without the url, which may hold a password."""
        return f"Source({self.name!r}, stream={self.options.get('stream')!r})"


class Input(NamedTuple):
    """A static table; ``options`` are those of Spark's reader of that format.

    ``path`` is None where the options say what is read (jdbc).
    """

    name: str
    path: Path | None
    format: Format
    schema: StructType | None
    options: dict[str, str]

    def __repr__(self) -> str:
        """Without the options, which may hold a password."""
        return f"Input({self.name!r}, {self.format})"


class Expectation(NamedTuple):
    """What every row of a table should fulfil, and what becomes of one that does not."""

    name: str
    predicate: str
    action: Action


class Watermark(NamedTuple):
    """How late rows may be, by ``column`` of ``of``; without ``of``, of all that stream and have it."""

    column: str
    delay: str
    of: str | None


class Target(NamedTuple):
    """Where a table goes: the keys of its sink."""

    sink: str
    path: Path | None = None
    url: str | None = None
    stream: str | None = None
    key: tuple[str, ...] = ()
    checkpoint: Path | None = None
    options: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __repr__(self) -> str:
        """As it may be shown to anyone."""
        if self.path is not None:
            return f"{self.sink} {self.path}"
        if self.stream is not None:
            return f"{self.sink} {self.stream}" + (f" at {redacted(self.url)}" if self.url else "")
        return self.sink


class Table(NamedTuple):
    """A table that the pipeline makes; ``reads`` is in its SQL."""

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
        """The table's directory, where it has one."""
        return self.target.path

    @property
    def streams(self) -> bool:
        """Whether a streaming query makes it."""
        return self.mode != "complete"


class Pipeline(NamedTuple):
    """A whole declaration. ``tables`` are in the order in which they can be made.

    ``interval`` is in seconds; None stands for the trigger available-now. ``archive`` is what
    archiving.py read. ``secrets`` is what came from the environment and must not be shown.
    """

    file: Path
    sources: dict[str, Source]
    inputs: dict[str, Input]
    tables: dict[str, Table]
    interval: float | None
    master: str | None
    app: str
    conf: dict[str, str]
    archive: Any = None
    secrets: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Without settings and secrets."""
        return f"Pipeline({str(self.file)!r}, tables={list(self.tables)})"

    def shown(self, text: str) -> str:
        """``text`` without what came from the environment: urls keep their place, no more."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if secret:
                text = text.replace(secret, redacted(secret) if "://" in secret else "***")
        return text


def load(file: Path | str, *, overrides: Sequence[str] = ()) -> Pipeline:
    """The declaration in ``file``, with ``overrides`` (``key=value``) put over what it says.

    Raises `PipelineError` with the file, each key that is wrong, and what would be right.
    """
    from headwater.spark.pipeline.reading import read

    path = Path(file)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path}: is no UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path}: is no TOML: {error}") from error
    for setting in overrides:
        override(document, setting)
    return read(path, document)
