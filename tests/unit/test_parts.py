"""Sealed blocks that are compressed in parts, and opened in part."""

from __future__ import annotations

import zlib
from array import array
from random import Random

import pytest

from headwater.common import limits
from headwater.engine.bodies.codecs import make_codec
from headwater.engine.bodies.sealed_block import (
    SealedBlock,
    body_of,
    marks_of,
    parts_in,
    start_in,
    unpack,
    unpacked,
)
from headwater.native.memory import append_entry

COUNT = 240


def entries(sizes: list[int]) -> tuple[bytearray, array[int]]:
    """Return entries with values of these sizes, and where they begin."""
    chance, data, offsets = Random(len(sizes)), bytearray(), array("I")
    for seq, size in enumerate(sizes, 1):
        offsets.append(len(data))
        value = chance.randbytes(size // 4).hex().encode() * 2
        wire = bytearray(b"$5\r\nvalue\r\n$%d\r\n%b\r\n" % (len(value), value))
        append_entry(data, 5, seq, 2, wire, 0, len(wire))
    return data, offsets


def sealed(
    data: bytearray, offsets: array[int], codec: str, *, marked: bool
) -> tuple[SealedBlock, bytes]:
    """Return a block on disk, and its body."""
    marks = marks_of(offsets, len(data))
    body = body_of(data, marks, make_codec(codec))
    return SealedBlock(codec, None, b"", len(data), len(offsets), marks if marked else b""), body


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_entries_are_the_same_in_whatever_order_parts_are_opened(
    codec: str, seed: int, *, marked: bool
) -> None:
    # Given a block of three parts, of a store that runs or was recovered
    chance = Random(seed)
    data, offsets = entries([chance.choice((60, 200, 300)) for _ in range(COUNT)])
    block, body = sealed(data, offsets, codec, marked=marked)
    assert parts_in(block, body) == 3
    edges = [*offsets, len(data)]
    # When ranges of it are read
    for _ in range(20):
        first = chance.randrange(COUNT)
        end = min(COUNT, first + chance.choice((1, 16, 100, COUNT)))
        if not block.has_open(first, end):
            unpack(block, make_codec(codec), body if block.rest is None else block.rest, first, end)
        # Then their entries are found, whichever end is looked up first
        for at in sorted((first, end), key=lambda _: chance.random()):
            if 0 < at < COUNT:
                assert start_in(block, at) == edges[at]
        assert block.data is not None
        base = block.opened_at
        assert (
            block.data[edges[first] - base : edges[end] - base] == data[edges[first] : edges[end]]
        )
        # And the body is kept as long as something is missing
        assert (block.rest is None) == block.has_open(0, COUNT)
        if chance.random() < 0.1:
            block.close()


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_a_few_entries_open_one_part_and_all_of_them_the_block(codec: str) -> None:
    # Given a block of three parts
    data, offsets = entries([200] * COUNT)
    block, body = sealed(data, offsets, codec, marked=True)
    # When one of the first entries is read
    unpack(block, make_codec(codec), body, 3, 4)
    # Then about a third of the bytes is in memory, and the body
    assert 0.3 * len(data) < block.open_bytes() - len(body) < 0.4 * len(data)
    # And when the block is closed, nothing
    block.close()
    assert block.open_bytes() == 0
    # And reading all entries returns what was compressed
    assert unpacked(block, make_codec(codec), body) == data


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([200] * 100, 0),  # smaller than 32 KiB
        ([8_000] * 7, 0),  # no entry is marked
        ([200] * 180, 2),  # smaller than 48 KiB
        ([20_000] + [60] * 330, 3),  # the first entry is larger than a part
        ([60] * 330 + [20_000], 3),
        ([200] * COUNT, 3),
    ],
)
def test_a_block_has_up_to_three_parts_if_it_has_enough_bytes_and_entries(
    sizes: list[int], parts: int
) -> None:
    data, offsets = entries(sizes)
    block, body = sealed(data, offsets, "zlib", marked=True)
    assert parts_in(block, body) == parts
    assert unpacked(block, make_codec("zlib"), body) == data


def test_bytes_that_are_stored_as_they_are_have_no_parts() -> None:
    block = SealedBlock("none", None, b"", 3, 1)
    assert parts_in(block, b"\x02\x00\x00") == 0


def test_a_part_that_cannot_be_decompressed_leaves_the_open_one_readable() -> None:
    # Given a block of which the first part is open, and a second part that is not valid
    data, offsets = entries([200] * COUNT)
    block, body = sealed(data, offsets, "zlib", marked=True)
    codec = make_codec("zlib")
    unpack(block, codec, body, 0, 1)
    opened = (block.data, block.opened_from, block.opened_to, block.opened_at)
    # When an entry of the second is read
    with pytest.raises(zlib.error):
        unpack(block, codec, body[:-20] + bytes(20), COUNT - 1, COUNT)
    # Then the first is open as before, and the second is not
    assert (block.data, block.opened_from, block.opened_to, block.opened_at) == opened
    assert block.has_open(0, 1)
    assert not block.has_open(COUNT - 1, COUNT)


def test_blocks_of_the_size_that_a_store_makes_have_parts() -> None:
    assert 3 * limits.PART_LEAST_BYTES <= limits.BLOCK_MAX_BYTES
