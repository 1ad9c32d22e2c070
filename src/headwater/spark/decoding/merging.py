"""Merges small record batches: Spark takes a millisecond per batch, and each small stream makes a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

ENOUGH_ROWS: Final = 2000
ENOUGH_BYTES: Final = 1024 * 1024
"""A batch with at least this many rows or bytes is not merged with later ones."""


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches``, which must have the same schema, in their order and in fewer batches.

    >>> import pyarrow as pa
    >>> small = pa.RecordBatch.from_pydict({"n": [1, 2]})
    >>> [batch.num_rows for batch in merged([small] * 1500)]
    [2000, 1000]
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ENOUGH_ROWS or size >= ENOUGH_BYTES:
            yield from _together(held)
            held, rows, size = [], 0, 0
    yield from _together(held)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    import pyarrow as pa

    # More than one batch is left only if a column has more than 2 GiB of text.
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found
