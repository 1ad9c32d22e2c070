"""What makes a block's bytes fewer, and makes them whole again.

zstd at level 1 where the package ``zstandard`` is installed, else zlib at level 1, which every Python
has: it takes three times as long and half as much space again (docs/adr/0028-sealed-blocks.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

AUTO = "auto"
NONE = "none"
ZLIB = "zlib"
ZSTD = "zstd"

_LEVEL = 1
"""Higher ones cost several times as much for a tenth less."""


class Codec(NamedTuple):
    """One way to compress. What it holds is no two threads' at the same time: each makes its own.

    >>> codec = make_codec("zlib")
    >>> wire = codec.compress(bytearray(1000))
    >>> len(wire) < 30, codec.decompress(wire, 1000) == bytes(1000)
    (True, True)
    """

    name: str
    compress: Callable[[bytearray], bytes]
    decompress: Callable[[bytes, int], bytes]
    """Of what was compressed and how many bytes it was."""


def make_codec(name: str) -> Codec:
    """The codec of this name, `AUTO` for the best there is. Raises `ValueError` where it is not
    installed."""
    if name == AUTO:
        name = ZSTD if has_zstd() else ZLIB
    if name == ZLIB:
        return Codec(ZLIB, lambda data: zlib.compress(data, _LEVEL), _inflate)
    assert name == ZSTD, name
    if not has_zstd():
        raise ValueError("zstd needs the package zstandard: pip install zstandard")
    zstandard = import_module("zstandard")
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    decompressor = zstandard.ZstdDecompressor()

    def compress(data: bytearray) -> bytes:
        # What it gives holds the room of the longest result that was possible; a copy does not.
        return bytes(memoryview(compressor.compress(data)))

    return Codec(ZSTD, compress, decompressor.decompress)


def has_zstd() -> bool:
    """Whether zstd is at hand."""
    return find_spec("zstandard") is not None


def _inflate(wire: bytes, size: int) -> bytes:
    return zlib.decompress(wire, bufsize=size)
