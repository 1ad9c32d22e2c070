"""The digest of strings is XXH3 of 64 bits, as the reference implementation computes it."""

from __future__ import annotations

import pytest

from headwater.commands.values.xxh3 import xxh3

VECTORS = {
    0: "2d06800538d394c2", 1: "c44bdff4074eecdb", 3: "c3489259e968ad9e", 4: "d3d60c1519014e89",
    8: "b88dee77f6bf6980", 9: "03688dcad730d826", 16: "9da23836adf2be1e", 17: "f34c3c9cf5a112d1",
    128: "65f3c2c00fa93185", 129: "28065c6ec25f5b25", 240: "4917a75c0ef8eed7",
    241: "541b19226f0052e8", 1024: "dc5acf0b043c445b", 1025: "e1d9cd946277ae26",
    5000: "6abe8be5abcb2760",
}  # fmt: skip
"""Length of ``bytes(7 * i & 255 …)`` → its hash by xxhash 0.8, at the bounds of each of its ways."""


@pytest.mark.parametrize("size", VECTORS)
def test_a_hash_is_that_of_the_reference(size: int) -> None:
    assert f"{xxh3(bytes(7 * i & 255 for i in range(size))):016x}" == VECTORS[size]
