"""The order of a server to its helper process, and the helper's report: one line of JSON each.

server ── CheckpointOrder ──▶ standard input     standard output ── BuiltImage or a reason ──▶ server
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headwater.journal.format.manifest import ImageEntry
from headwater.journal.format.records import Synced
from headwater.journal.images.rotation import Rotation


class CheckpointFailed(Exception):
    """An image could not be written, for the reason in the text. The journal still has everything, unless
    ``damaged`` is True: then a file that a start would read is damaged."""

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.damaged = damaged


class BuiltImage(NamedTuple):
    """An image that was written, and the numbers of the segments to which it refers."""

    entry: ImageEntry
    segments: list[int]


class CheckpointOrder(NamedTuple):
    """An order to write an image, from the image ``old`` (None: an empty store) and the files in ``rotation``.

    ``digest`` is the digest of the server's sources. ``hot_bytes`` and ``compression`` are the settings
    ``stream-hot-bytes`` and ``stream-compression``: the helper seals blocks as the server does.
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
        """Return the order of a line that `encode` returned. Raises `ValueError` or `TypeError` for another line."""
        directory, digest, seed, old, rotation, hot_bytes, compression = json.loads(line)
        image, first, closed, end, *others = rotation
        return cls(
            directory,
            digest,
            seed,
            None if old is None else ImageEntry(*old),
            Rotation(image, first, closed, Synced(*end), *others),
            hot_bytes,
            compression,
        )


_MARK = "headwater checkpoint"
"""Distinguishes a report from other output of the interpreter (PYTHONVERBOSE, PYTHONMALLOCSTATS)."""


def encode_report(result: BuiltImage | CheckpointFailed) -> bytes:
    """Return the line that reports the written image, or the reason why none was written."""
    if isinstance(result, CheckpointFailed):
        return json.dumps([_MARK, "failed", str(result), result.damaged]).encode() + b"\n"
    return json.dumps([_MARK, "built", *result]).encode() + b"\n"


def decode_report(lines: Sequence[bytes]) -> BuiltImage:
    """Return the image that one of these lines reports. Raises `CheckpointFailed` with the reported reason, or
    with the last line if none is a report."""
    for line in reversed(lines):
        try:
            mark, what, one, two = json.loads(line)
            if (mark, what) == (_MARK, "built"):
                return BuiltImage(ImageEntry(*one), [int(number) for number in two])
        except (ValueError, TypeError):
            continue
        if mark == _MARK:
            raise CheckpointFailed(str(one), damaged=bool(two))
    raise CheckpointFailed(lines[-1].decode("utf-8", "replace").strip())
