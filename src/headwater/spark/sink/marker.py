"""The record of the last batch that a query began: the hash ``{dest}:hw:sink:<query>``, next to the stream.

epoch      the number of the batch
stages     its stages in order, with their numbers of rows and packs: [["<uuid>", 1000, 1], …]; missing if done
stage      the index of the stage that is being published
position   the number of the stage's entries that are published
published  the number of the batch's entries that are published
entries    the number of the batch's entries
done       1 if all entries are published; otherwise missing
reached    the batch after which ``added`` and ``last`` were read
added      the number of entries ever added to the stream at that time
last       the last id of the stream at that time; both decrease only if the options accept a loss
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.errors import HeadwaterError


class Reached(NamedTuple):
    """The stream's number of added entries and its last id after batch ``epoch`` was published."""

    epoch: int
    added: int
    last: StreamID


@dataclass(frozen=True)
class Marker:
    """One state of the hash."""

    epoch: int
    stages: tuple[tuple[str, int, int], ...]
    stage: int
    position: int
    published: int
    entries: int
    done: bool
    reached: Reached | None = None

    @property
    def uuids(self) -> set[str]:
        """The stages that the marker names."""
        return {uuid for uuid, _count, _packs in self.stages}

    def fields(self) -> dict[Any, Any]:
        """Return the fields of the hash that represents this state."""
        made: dict[Any, Any] = {
            "epoch": str(self.epoch),
            "stages": json.dumps(self.stages, separators=(",", ":")),
            "stage": str(self.stage),
            "position": str(self.position),
            "published": str(self.published),
            "entries": str(self.entries),
        }
        if self.done:
            made["done"] = "1"
            del made["stages"]
        if self.reached is not None:
            epoch, added, last = self.reached
            made |= {"reached": str(epoch), "added": str(added), "last": str(last)}
        return made

    @classmethod
    def begin(
        cls, epoch: int, stages: list[tuple[str, int, int]], reached: Reached | None = None
    ) -> Marker:
        """Return the marker of a batch before any of its entries is visible."""
        entries = sum(count for _uuid, count, _packs in stages)
        return cls(epoch, tuple(stages), 0, 0, 0, entries, done=not entries, reached=reached)

    @classmethod
    def parse(cls, key: str, reply: Any) -> Marker | None:
        """Parse the reply of HGETALL; return None if the hash does not exist."""
        pairs = (
            reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        )
        found = {name.decode(): value for name, value in pairs}
        if not found:
            return None
        try:
            done = "done" in found
            stages = tuple(map(_stage, json.loads(found.get("stages", b"[]"))))
            numbers = [
                int(found[name]) for name in ("epoch", "stage", "position", "published", "entries")
            ]
            reached = None
            if "reached" in found:
                reached = Reached(
                    int(found["reached"]), int(found["added"]), StreamID.parse(found["last"])
                )
            if not done and not 0 <= numbers[1] < len(stages):
                raise ValueError("no such stage")
        except (KeyError, ValueError, TypeError) as error:
            raise HeadwaterError(
                f"{key} is not what the sink wrote there ({error}): restore it, or remove it and "
                "use a new checkpoint for the query"
            ) from None
        epoch, stage, position, published, entries = numbers
        return cls(epoch, stages, stage, position, published, entries, done=done, reached=reached)


def _stage(words: list[Any]) -> tuple[str, int, int]:
    """Parse a stage. If an earlier version recorded it, it has an entry for each row."""
    uuid, count, *packs = words
    return str(uuid), int(count), int(packs[0] if packs else count)
