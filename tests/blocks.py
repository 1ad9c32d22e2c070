"""Blocks of entries so small that a short history fills many of them and seals most."""

from __future__ import annotations

import pytest

from headwater import limits
from headwater.config.config import Config


def tiny_blocks(patches: pytest.MonkeyPatch, *, block_bytes: int = 160) -> None:
    """For the stores that are made from now on, compiled or not: blocks of so many bytes, of which none
    stays as it was written but the one that is written to, and that only for a turn. Sealing happens
    where turns help with it, at their end, so histories repeat themselves."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", block_bytes)
    patches.setattr(limits, "SEALED_LEAST_BYTES", 1)
    patches.setattr(limits, "SEALING_LAG_BYTES", 0)
    nothing_hot(patches)
    patches.setattr(limits, "OPENED_BLOCKS", 2)


def nothing_hot(patches: pytest.MonkeyPatch) -> None:
    """For the stores that are made from now on: ``stream-hot-bytes`` is 0 by default."""
    defaults = Config.__init__.__kwdefaults__
    assert defaults is not None
    patches.setitem(defaults, "stream_hot_bytes", 0)
