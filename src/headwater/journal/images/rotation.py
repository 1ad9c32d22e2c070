"""The result of a rotation of the journal: everything that is needed to write an image."""

from __future__ import annotations

from typing import NamedTuple

from headwater.journal.format.records import Synced


class Rotation(NamedTuple):
    """The journal up to ``end`` is closed and durable; it continues in file ``first``.

    The image of the state at ``end`` gets the reserved number ``image``, ``turn`` and ``now_ms`` of the
    last group before ``end``, and the ``offset`` of the store there. It replaces the old image and the files from ``closed`` to ``end.number``. If
    ``closed`` is greater than ``end.number``, it replaces no files.
    """

    image: int
    first: int
    closed: int
    end: Synced
    turn: int
    now_ms: int
    offset: int
