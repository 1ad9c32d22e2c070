"""What a server orders from its helper process, and what the helper reports: one line of JSON each.

server ── CheckpointOrder ──▶ standard input     standard output ── BuiltImage or a reason ──▶ server
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headwater.journal.manifest import ImageEntry
from headwater.journal.records import Synced
from headwater.journal.rotation import Rotation


class CheckpointFailed(Exception):
    """An image could not be written. The text is the reason; the journal still has everything."""


class BuiltImage(NamedTuple):
    """An image that was written, and the numbers of the segments to which it refers."""

    entry: ImageEntry
    segments: list[int]


class CheckpointOrder(NamedTuple):
    """An image to be written: from the image ``old`` and the journal files that ``rotation`` has closed.

    ``digest`` is that of the server's sources. ``hot_bytes`` and ``compression`` are the settings of the same
    names: the helper seals blocks as the server does.
    """

    directory: str
    digest: str
    seed: int
    old: ImageEntry | None
    rotation: Rotation
    hot_bytes: int
    compression: str

    def encode(self) -> bytes:
        """Return the order as a line."""
        return json.dumps(self).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> CheckpointOrder:
        """Return the order that `encode` has made a line of. Raises `ValueError` or `TypeError` for another
        line."""
        directory, digest, seed, old, rotation, hot_bytes, compression = json.loads(line)
        image, first, closed, end, turn, now_ms = rotation
        return cls(
            directory,
            digest,
            seed,
            None if old is None else ImageEntry(*old),
            Rotation(image, first, closed, Synced(*end), turn, now_ms),
            hot_bytes,
            compression,
        )


def encode_report(result: BuiltImage | str) -> bytes:
    """Return the line that reports the image that was written, or why none was."""
    return json.dumps(result).encode() + b"\n"


def decode_report(line: bytes) -> BuiltImage:
    """Return the image of a report. Raises `CheckpointFailed` with the reason that it gives, or with the line
    itself if that cannot be parsed."""
    try:
        found: Any = json.loads(line)
        if isinstance(found, list):
            entry, segments = found
            return BuiltImage(ImageEntry(*entry), [int(number) for number in segments])
    except (ValueError, TypeError):
        found = line.decode("utf-8", "replace").strip()
    raise CheckpointFailed(str(found))
