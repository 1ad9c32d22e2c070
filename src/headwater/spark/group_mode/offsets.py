"""The offset of a query in group mode, which names the entries of one batch.

    {"group": "billing", "consumer": "spark", "batch": 7, "streams": {
        "orders": {"seen": "9-3", "runs": [["5-0", "9-3", 120]], "ids": {"3-1": 2}}}}

Rule 1. A *run* is the contents of one reply to ``>``: neighbouring entries, identified by the run's ends
        and the number of entries. Ids only grow, so no entry can appear between the ends later, and entries
        that are missing when the run is read were removed. All other entries are named singly, with their
        delivery counts.
Rule 2. No two batches have the same offset, because ``batch`` counts up. Spark interprets an equal offset as
        "nothing new", but the same entries may be delivered again after a group was recreated.
Rule 3. ``seen`` is the greatest id that was ever delivered as a new entry. A group that vanished is
        recreated at that id.

A checkpoint of log mode does not have these keys in this form, so it is rejected. Likewise log mode rejects
checkpoints of group mode (log_mode/offsets.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.common.model import StreamID
from headwater.errors import DeclarationError
from headwater.spark.core.options import SourceOptions

Offset = dict[str, Any]
"""An offset as Spark stores it: a dict that is written as JSON."""


@dataclass(frozen=True)
class EntryRun:
    """``count`` neighbouring entries that were delivered together for the first time."""

    first: StreamID
    last: StreamID
    count: int


@dataclass(frozen=True)
class Portion:
    """A batch's entries of one stream. ``singles`` are delivery counts by id; ``seen`` is None if unknown."""

    runs: tuple[EntryRun, ...] = ()
    singles: Mapping[StreamID, int] = field(default_factory=dict)
    seen: StreamID | None = None

    @property
    def entries(self) -> int:
        return len(self.singles) + sum(run.count for run in self.runs)


@dataclass(frozen=True)
class GroupBatch:
    """The contents of an offset. ``number`` 0 is the offset before the first batch."""

    group: str
    consumer: str
    number: int
    streams: Mapping[str, Portion]

    def offset(self) -> Offset:
        """Return the offset as Spark stores it.

        >>> GroupBatch("g", "c", 1, {"s": Portion(seen=StreamID(5, 0))}).offset()
        {'group': 'g', 'consumer': 'c', 'batch': 1, 'streams': {'s': {'seen': '5-0'}}}
        """
        return {
            "group": self.group,
            "consumer": self.consumer,
            "batch": self.number,
            "streams": {name: _written(portion) for name, portion in self.streams.items()},
        }


def batch_of(offset: Offset, options: SourceOptions) -> GroupBatch:
    """Parse ``offset``.

    Raises `DeclarationError` for the offset of another source, group or consumer, because the offset names
    entries to settle, and only their owner can settle them.
    """
    try:
        batch = _read(offset)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DeclarationError(
            f"the checkpoint contains an offset that is not from a query in group mode: {_cut(offset)}. "
            "Each query needs its own checkpointLocation; set another one for this query. (A query "
            "cannot change from log mode to group mode, or back.)"
        ) from None
    assert options.group is not None, "group mode has a group"
    for name, found, wanted in (
        ("group", batch.group, options.group.name),
        ("consumerPrefix", batch.consumer, options.group.consumer),
    ):
        if found != wanted:
            raise DeclarationError(
                f"{name}: the checkpoint was written with {found!r}, not {wanted!r}, and only that "
                "member can settle the entries it names. Keep the name, or give the query another "
                "checkpointLocation."
            )
    return batch


def _written(portion: Portion) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if portion.seen is not None:
        words["seen"] = str(portion.seen)
    if portion.runs:
        words["runs"] = [[str(run.first), str(run.last), run.count] for run in portion.runs]
    if portion.singles:
        words["ids"] = {str(id_): count for id_, count in portion.singles.items()}
    return words


def _read(offset: Offset) -> GroupBatch:
    group, consumer, number = offset["group"], offset["consumer"], offset["batch"]
    if not (isinstance(group, str) and isinstance(consumer, str) and type(number) is int):
        raise TypeError("expected names and a number")
    streams = {name: _portion(words) for name, words in offset["streams"].items()}
    return GroupBatch(group, consumer, number, streams)


def _portion(words: dict[str, Any]) -> Portion:
    if words.keys() - {"seen", "runs", "ids"}:
        raise ValueError("an unknown key")
    runs = []
    for first, last, count in words.get("runs", ()):
        run = EntryRun(StreamID.parse(first), StreamID.parse(last), count)
        if type(count) is not int or count < 1 or run.first > run.last:
            raise ValueError(f"invalid run: {run}")
        runs.append(run)
    singles = {}
    for id_, count in words.get("ids", {}).items():
        if type(count) is not int:
            raise TypeError(f"invalid delivery count: {count!r}")
        singles[StreamID.parse(id_)] = count
    seen = words.get("seen")
    return Portion(tuple(runs), singles, None if seen is None else StreamID.parse(seen))


def _cut(offset: object) -> str:
    text = repr(offset)
    return text if len(text) <= 200 else text[:200] + "…"
