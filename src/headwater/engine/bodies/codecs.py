"""Compression of the bytes of sealed blocks.

By default, the codec is zstd if the package ``zstandard`` is installed, otherwise zlib, which every Python has.
zlib takes three times as long, and one and a half times the space (docs/adr/0028-sealed-blocks.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

AUTO = "auto"
NONE = "none"
ZLIB = "zlib"
ZSTD = "zstd"

CODECS = (NONE, ZLIB, ZSTD)
"""The codecs of blobs. Facts and blobs store a codec as its index in this tuple."""

_LEVEL = 1
"""Compression level of both codecs. Higher levels take several times as long and save a tenth more space."""
_MIN_MATCH = 7
"""Minimum length of zstd's matches, in bytes. Entries of one stream repeat long pieces: with 6, the default of
this level, blocks are just as large, and decompressing one takes 3 to 10 percent longer."""


class CodecMissing(ValueError):
    """A codec is not installed. The text names its package, and how to install it."""


class Codec(NamedTuple):
    """A compression method. Its state is not thread-safe: each thread creates its own codec.

    >>> codec = make_codec("zlib")
    >>> wire = codec.compress(bytearray(1000))
    >>> len(wire) < 30, codec.decompress(wire, 1000) == bytes(1000)
    (True, True)
    """

    name: str
    compress: Callable[[bytearray], bytes]
    decompress: Callable[[bytes, int], bytes]
    """Takes the compressed bytes and their size before compression."""


def make_codec(name: str) -> Codec:
    """Return the codec with this name; `AUTO` is the best available one, `NONE` leaves the bytes as they are.
    Raises `CodecMissing`."""
    if name == NONE:
        return Codec(NONE, bytes, lambda wire, _size: wire)
    if name == AUTO:
        name = ZSTD if has_zstd() else ZLIB
    if name == ZLIB:
        return Codec(ZLIB, lambda data: zlib.compress(data, _LEVEL), _inflate)
    assert name == ZSTD, name
    check_installed(name)
    zstandard = import_module("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, min_match=_MIN_MATCH)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    decompressor = zstandard.ZstdDecompressor()

    def compress(data: bytearray) -> bytes:
        # The result keeps the memory of the longest possible result; a copy does not.
        return bytes(memoryview(compressor.compress(data)))

    return Codec(ZSTD, compress, decompressor.decompress)


def codec_in(codecs: dict[str, Codec], name: str) -> Codec:
    """Return the codec with this name from ``codecs``, the codecs of one thread. Create it if it is missing.
    Raises `CodecMissing`."""
    codec = codecs.get(name)
    if codec is None:
        codec = make_codec(name)
        codecs[name] = codecs[codec.name] = codec
    return codec


def check_installed(name: str) -> None:
    """Raise `CodecMissing` if the codec with this name is not installed."""
    if name == ZSTD and not has_zstd():
        raise CodecMissing("zstd needs the package zstandard: pip install zstandard")


def has_zstd() -> bool:
    """Return whether zstd is installed, and can be imported: its package may be one for another Python."""
    try:
        import_module("zstandard")
    except ImportError:
        return False
    return True


def _inflate(wire: bytes, size: int) -> bytes:
    return zlib.decompress(wire, bufsize=size)
