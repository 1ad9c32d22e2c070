"""The result of a rotation of the journal: everything that is needed to write an image."""

from __future__ import annotations

from typing import NamedTuple

from headwater.journal.format.records import Synced


class Rotation(NamedTuple):
    """The journal up to ``end`` is closed and durable; it continues in file ``first``.

    An image of the state then has the reserved number ``image``, and ``turn`` and ``now_ms`` of the last
    group before. It is the old image followed by the files from ``closed`` to ``end.number``; by none if
    ``closed`` is the larger.
    """

    image: int
    first: int
    closed: int
    end: Synced
    turn: int
    now_ms: int
