"""Settling the last batch of a query that has ended.

Spark asks for the next batch, and so says that the last one was committed, only while the query
goes on. What the last batch named stays pending when it ends, until it starts again or a worker
claims it and handles it once more. `settle_committed` reads in the checkpoint which batch was
committed last and settles that.

Rule 1. Only a batch in the commit log is settled; one that was planned and not committed is replayed.
Rule 2. Settlements are owner-checked, so it may run twice, and beside a query that has started again.
Rule 3. The checkpoint is read as text and JSON, within bounds; nothing in it is believed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headwater.errors import HeadwaterError
from headwater.groups.operation import GroupVanished
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.store import SourceStore, patiently
from headwater.spark.group_mode.membership import Membership, speaking_of
from headwater.spark.group_mode.offsets import GroupBatch, batch_of

_MOST_BYTES: Final = 64 * 1024 * 1024
"""An offset file lists at most some 20,000 entries and runs of each source."""


def settle_committed(options: SourceOptions, checkpoint: Path, *, source: int = 0) -> int:
    """Settle what the last committed batch of the query at ``checkpoint`` names; how many entries
    were still this consumer's. ``source`` is the source's place among those of the query.

    Raises `HeadwaterError` naming the file when the checkpoint cannot be read, `Disconnected` when
    the store cannot be reached.
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
        with speaking_of(options):
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
            continue  # nothing is pending in a group that is not there
    return done


def _last(log: Path) -> int | None:
    """The number of the last batch in a log of Spark's; its files are named by number."""
    try:
        numbers = [int(path.name) for path in log.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeadwaterError(f"cannot read the checkpoint {log}: {error.strerror}") from error
    return max(numbers, default=None)


def _offset(path: Path, source: int) -> Any:
    """What one source's offset was: the third line and on of Spark's offset file, a line a source."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise HeadwaterError(f"{path} is larger than any offset of this source")
        version, _metadata, *offsets = path.read_text(encoding="utf-8").split("\n")
        if version != "v1":
            raise HeadwaterError(
                f"{path} has the format {version[:20]!r}, not v1; it was written by a Spark with "
                "spark.sql.streaming.offsetLog.formatVersion set, or by something else"
            )
        return None if offsets[source] == "-" else json.loads(offsets[source])
    except OSError as error:
        raise HeadwaterError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, IndexError, RecursionError) as error:
        raise HeadwaterError(
            f"{path} is no offset file of a query with a source at place {source}: {error}"
        ) from error
