"""Makes blocks of entries so small that a short history fills many of them and seals most."""

from __future__ import annotations

import pytest

from headwater.common import limits
from headwater.config.config import Config
from headwater.testing.node import LocalStore


def tiny_blocks(patches: pytest.MonkeyPatch, *, block_bytes: int = 160) -> None:
    """Give stores that are created from now on, compiled or not, blocks of ``block_bytes``. Every block is
    sealed, except the one that is written to, and that one only during a turn. The turns themselves seal,
    at their end, so histories are deterministic. Replies are written in pieces of three blocks."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", block_bytes)
    patches.setattr(limits, "SEALED_LEAST_BYTES", 1)
    patches.setattr(limits, "SEALING_LAG_BYTES", 0)
    patches.setattr(limits, "REPLY_PIECE_BYTES", 3 * block_bytes)
    nothing_hot(patches)
    patches.setattr(limits, "COLD_CACHE_BYTES", 2 * block_bytes)
    defaults = Config.__init__.__kwdefaults__
    assert defaults is not None
    patches.setitem(defaults, "stream_cold_cache_bytes", 2 * block_bytes)


def nothing_hot(patches: pytest.MonkeyPatch) -> None:
    """Make 0 the default of ``stream-hot-bytes`` for stores that are created from now on."""
    defaults = Config.__init__.__kwdefaults__
    assert defaults is not None
    patches.setitem(defaults, "stream_hot_bytes", 0)


def everything_cold(patches: pytest.MonkeyPatch) -> None:
    """Let every `LocalStore` have a journal and tiny blocks, all of them on disk."""
    tiny_blocks(patches, block_bytes=400)
    defaults = LocalStore.__init__.__kwdefaults__
    assert defaults is not None
    patches.setitem(defaults, "cold", True)
