"""Settles the last batch of a query that has ended.

Spark reports that a batch was committed only by requesting the next batch, and only while the query runs. When a
query ends, the entries of its last batch therefore stay pending until the query starts again, or a worker claims
and handles them again. `settle_committed` finds the last committed batch in the checkpoint and settles it.

Rule 1. Only a batch in the commit log is settled. A batch that was planned but not committed is replayed.
Rule 2. Settlements are owner-checked, so it is safe to settle a batch twice, or while the query runs again.
Rule 3. The checkpoint is read as text and JSON with size limits, and all of its contents are validated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import GroupVanished
from headwater.spark.core.connection import patiently
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.store import SourceStore
from headwater.spark.group_mode.membership import Membership, naming_store
from headwater.spark.group_mode.offsets import GroupBatch, batch_of

_MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of an offset file in bytes. It names at most some 20,000 entries and runs per source."""


def settle_committed(options: SourceOptions, checkpoint: Path, *, source: int = 0) -> int:
    """Settle the last committed batch of the query at ``checkpoint``.

    Returns the number of entries that this consumer still owned. ``source`` is the index of the source in
    the query. Raises `HeadwaterError` naming the file if the checkpoint cannot be read, and
    `Disconnected` if the store cannot be reached.
    """
    committed = _last(checkpoint / "commits")
    if committed is None:
        return 0
    path = checkpoint / "offsets" / str(committed)
    offset = _offset(path, source)
    if offset is None:
        return 0
    batch = batch_of(offset, options)
    store = SourceStore(options)
    try:
        with naming_store(options):
            return patiently(options.url, lambda: _settle(Membership(options, store), batch))
    finally:
        store.close()


def _settle(membership: Membership, batch: GroupBatch) -> int:
    done = 0
    for stream, portion in batch.streams.items():
        if not portion.entries:
            continue
        try:
            done += membership.settle(stream, membership.owned_of(stream, portion))
        except GroupVanished:
            continue  # a group that does not exist has no pending entries
    return done


def _last(log: Path) -> int | None:
    """Return the number of the last batch in one of Spark's logs, whose files are named by number."""
    try:
        numbers = [int(path.name) for path in log.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeadwaterError(f"cannot read the checkpoint {log}: {error.strerror}") from error
    return max(numbers, default=None)


def _offset(path: Path, source: int) -> Any:
    """Return the offset of one source. The third and later lines of Spark's file are the sources' offsets."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise HeadwaterError(f"{path} is larger than any offset of this source")
        version, _metadata, *offsets = path.read_text(encoding="utf-8").split("\n")
        if version != "v1":
            raise HeadwaterError(
                f"{path} has the format {version[:20]!r}, not v1; it was written by a Spark with "
                "spark.sql.streaming.offsetLog.formatVersion set, or by another program"
            )
        return None if offsets[source] == "-" else json.loads(offsets[source])
    except OSError as error:
        raise HeadwaterError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, IndexError, RecursionError) as error:
        raise HeadwaterError(
            f"{path} is not an offset file of a query with a source at index {source}: {error}"
        ) from error
