"""Blocks of entries so small that a short history fills many of them and seals most."""

from __future__ import annotations

import pytest

from headwater import limits


def tiny_blocks(patches: pytest.MonkeyPatch, *, block_bytes: int = 160) -> None:
    """For the stores that are made from now on, compiled or not: blocks of so many bytes, of which none
    stays as it was written but the one that is written to, and that only for a turn. Sealing happens
    where turns help with it, at their end, so histories repeat themselves."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", block_bytes)
    patches.setattr(limits, "SEALED_LEAST_BYTES", 1)
    patches.setattr(limits, "SEALING_LAG_BYTES", 0)
    patches.setattr(limits, "STREAM_HOT_BYTES", 0)
    patches.setattr(limits, "OPENED_BLOCKS", 2)
