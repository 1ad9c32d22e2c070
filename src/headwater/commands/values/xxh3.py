"""XXH3, the hash of 64 bits that DIGEST replies with, without a seed.

Each length has its own way: up to 16 bytes, up to 240, and longer ones in stripes of 64 bytes, of which each
adds to eight words. The stripes are compiled.

Source: the specification of the algorithm, github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import set_word, word_at

_WORD = 2**64 - 1
_LOW = 2**32 - 1
_P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
_MIX = 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE, _STRIPES_OF_BLOCK = 64, 16


def xxh3(data: bytes) -> int:
    """Return the hash of ``data``.

    >>> f"{xxh3(b'Hello world'):016x}"
    'b6acb9d84a38ff74'
    """
    size = len(data)
    if size > 240:
        return _long(data)
    if size > 128:
        total = (size * _P64[0] + sum(_mixed(data, at, at) for at in range(0, 128, 16))) & _WORD
        total = _avalanche(total)
        total += sum(_mixed(data, at, at - 125) for at in range(128, size - 15, 16))
        return _avalanche((total + _mixed(data, size - 16, 119)) & _WORD)
    if size > 16:
        total = size * _P64[0]
        for at in range(0, (size - 1) // 32 * 16 + 1, 16):
            total += _mixed(data, at, 2 * at) + _mixed(data, size - 16 - at, 2 * at + 16)
        return _avalanche(total & _WORD)
    if size > 8:
        low = _number(data, 0, 8) ^ _number(_SECRET, 24, 8) ^ _number(_SECRET, 32, 8)
        high = _number(data, size - 8, 8) ^ _number(_SECRET, 40, 8) ^ _number(_SECRET, 48, 8)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded(low, high)) & _WORD)
    if size > 3:
        word = _number(data, size - 4, 4) + (_number(data, 0, 4) << 32)
        word ^= _number(_SECRET, 8, 8) ^ _number(_SECRET, 16, 8)
        word ^= _rotated(word, 49) ^ _rotated(word, 24)
        word = word * _MIX & _WORD
        word = (word ^ ((word >> 35) + size)) * _MIX & _WORD
        return word ^ word >> 28
    if size:
        word = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _final(word ^ _number(_SECRET, 0, 4) ^ _number(_SECRET, 4, 4))
    return _final(_number(_SECRET, 56, 8) ^ _number(_SECRET, 64, 8))


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _WORD


def _mixed(data: bytes, at: int, secret: int) -> int:
    one = _number(data, at, 8) ^ _number(_SECRET, secret, 8)
    return _folded(one, _number(data, at + 8, 8) ^ _number(_SECRET, secret + 8, 8))


def _avalanche(word: int) -> int:
    word = (word ^ word >> 37) * 0x165667919E3779F9 & _WORD
    return word ^ word >> 32


def _final(word: int) -> int:
    word = (word ^ word >> 33) * _P64[1] & _WORD
    word = (word ^ word >> 29) * _P64[2] & _WORD
    return word ^ word >> 32


def _words(data: bytes) -> array[int]:
    words = array("Q", data)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _long(data: bytes) -> int:
    size = len(data)
    sums = array("Q", [_P32[2], *_P64[:4], _P32[1], _P64[4], _P32[0]])
    stripes = (size - 1) // _STRIPE
    add_stripes(sums, _words(data[: stripes * _STRIPE]), _words(_SECRET), stripes)
    add_stripe(sums, _words(data[-_STRIPE:]), 0, _words(_SECRET[121:185]), 0)
    total = size * _P64[0]
    for at in range(0, 8, 2):
        secret = 11 + 8 * at
        one = sums[at] ^ _number(_SECRET, secret, 8)
        total += _folded(one, sums[at + 1] ^ _number(_SECRET, secret + 8, 8))
    return _avalanche(total & _WORD)


def add_stripes(sums: array[int], words: array[int], secret: array[int], count: int) -> None:
    """Add ``count`` stripes, and scramble the sums after each whole block of them."""
    for number in range(count):
        add_stripe(sums, words, 8 * number, secret, number % _STRIPES_OF_BLOCK)
        if number % _STRIPES_OF_BLOCK == _STRIPES_OF_BLOCK - 1:
            for at in range(8):
                one = word_at(sums, at)
                one = ((one ^ one >> 47 ^ word_at(secret, 16 + at)) * 0x9E3779B1) & _WORD
                set_word(sums, at, one)


def add_stripe(
    sums: array[int], words: array[int], first: int, secret: array[int], offset: int
) -> None:
    """Add the stripe that begins at word ``first``, with the part of the secret at ``offset``."""
    for at in range(8):
        word = word_at(words, first + at)
        key = word ^ word_at(secret, offset + at)
        set_word(sums, at ^ 1, (word_at(sums, at ^ 1) + word) & _WORD)
        set_word(sums, at, (word_at(sums, at) + (key & _LOW) * (key >> 32)) & _WORD)
