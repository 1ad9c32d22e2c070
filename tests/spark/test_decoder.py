"""Columns cut from a reply's bytes equal those that hiredis parses, for any bytes.

Replies are cut only where `cutting.py` is compiled; these tests run it compiled and plain.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import hiredis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ProtocolError
from headwater.spark.decoding.cut_page import CutPage
from headwater.spark.decoding.cutting import MORE, ODD, WHOLE, ReplyCutter
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import PageDecoder
from tests.spark.replies import reply_of

Entry = tuple[bytes, list[bytes]]

SETTINGS = settings(max_examples=150)

HALF = st.integers(0, 2**64 - 1)
IDS = st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), HALF, HALF)
VALUES = st.one_of(
    st.binary(max_size=30), st.sampled_from([b"", b"\r\n", b"\x00", b"$1\r\na\r\n", b"17"])
)
NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"hw.error", b""]), st.binary(min_size=1, max_size=12)
)


@st.composite
def regular(draw: st.DrawFn, *, most: int = 12) -> list[Entry]:
    """Entries with the same names in the same order."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    values = st.lists(VALUES, min_size=len(names), max_size=len(names))
    rows = draw(st.lists(st.tuples(IDS, values), min_size=1, max_size=most))
    return [
        (id_, [part for pair in zip(names, row, strict=True) for part in pair]) for id_, row in rows
    ]


@st.composite
def irregular(draw: st.DrawFn) -> list[Entry]:
    """Arbitrary entries, regular ones first: names missing, repeated, in another order, none."""
    entries = list(draw(st.one_of(st.just([]), regular(most=4))))
    bodies = st.lists(st.tuples(NAMES, VALUES), max_size=5)
    for id_, body in draw(st.lists(st.tuples(IDS, bodies), max_size=6)):
        entries.append((id_, [part for pair in body for part in pair]))
    turn: bool = draw(st.booleans())
    if entries and turn:
        id_, flat = draw(st.sampled_from(entries))
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        turned = [part for pair in draw(st.permutations(pairs)) for part in pair]
        entries.append((id_, turned))
    return entries


def pieces(wire: bytes, seed: int) -> Iterator[bytes]:
    """Yield ``wire`` split at random places."""
    rng = random.Random(seed)
    places = sorted(rng.randrange(len(wire) + 1) for _ in range(rng.randrange(8)))
    for start, end in zip([0, *places], [*places, len(wire)], strict=True):
        if start < end:
            yield wire[start:end]


def shown(page: Page) -> dict[str, Any]:
    """Return the results of all methods of a page."""
    names = {name for body in page.bodies for name in body[::2]}
    columns: dict[str, pa.Array] = {
        f"column {name!r}": page.column(name) for name in [*sorted(names), b"no such field"]
    }
    columns |= {"ids": page.id_column(), "moments": page.moments().cast(pa.int64())}
    for reserved in (False, True):
        parts = zip(("starts", "names", "values"), page.pairs(reserved=reserved), strict=True)
        columns |= {f"{part} {reserved}": array for part, array in parts}
    for array in columns.values():
        array.validate(full=True)
    lists = {"length": len(page), "ids as bytes": page.ids, "bodies": page.bodies}
    if page:
        lists["last"] = page.last_id
    return lists | {name: (array.type, array.to_pylist()) for name, array in columns.items()}


def whole(wire: bytes) -> dict[str, Any]:
    """Return the page that hiredis parses."""
    page = PageDecoder(cut=False).feed(wire)
    assert page is not None
    return shown(page)


def outcome(wire: bytes, seed: int, *, cut: bool) -> list[Any]:
    """Return a decoder's result for each piece: None, a page's contents or an error."""
    decoder, said = PageDecoder(cut=cut), []
    for piece in pieces(wire, seed):
        try:
            page = decoder.feed(piece)
            said.append(None if page is None else shown(page))
        except (ProtocolError, hiredis.ReplyError) as error:
            return [*said, (type(error), str(error))]
    return said


# --- equal columns --------------------------------------------------------------------------------


@SETTINGS
@given(entries=regular(), seed=st.integers(0, 2**32))
def test_a_regular_reply_is_cut_as_hiredis_parses_it(entries: list[Entry], seed: int) -> None:
    wire = reply_of(*entries)
    cutter = ReplyCutter()

    assert cutter.scan(bytearray(wire), len(wire)) == WHOLE
    assert cutter.end == len(wire)
    assert shown(CutPage(cutter)) == whole(wire)
    assert outcome(wire, seed, cut=True) == outcome(wire, seed, cut=False)


@SETTINGS
@given(entries=irregular(), seed=st.integers(0, 2**32))
def test_an_irregular_reply_has_the_same_columns(entries: list[Entry], seed: int) -> None:
    wire = reply_of(*entries)

    assert outcome(wire, seed, cut=True) == outcome(wire, seed, cut=False)


@SETTINGS
@given(entries=regular(most=4), seed=st.integers(0, 2**32), data=st.data())
def test_damaged_bytes_have_the_same_error_or_the_same_columns(
    entries: list[Entry], seed: int, data: st.DataObject
) -> None:
    wire = bytearray(reply_of(*entries))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(wire) - 1))
        new = data.draw(st.one_of(st.sampled_from(b"*$:-+_%~>0123456789\r\n"), st.integers(0, 255)))
        wire[place] = new
    kept = bytes(wire[: data.draw(st.integers(0, len(wire)))] if data.draw(st.booleans()) else wire)

    assert outcome(kept, seed, cut=True) == outcome(kept, seed, cut=False)


@pytest.mark.slow
@SETTINGS
@given(entries=regular(most=5))
def test_every_prefix_of_a_regular_reply_needs_more(entries: list[Entry]) -> None:
    wire = reply_of(*entries)
    whole, pieced = bytearray(wire), ReplyCutter()

    for size in range(len(wire)):
        assert ReplyCutter().scan(whole, size) == MORE
        assert pieced.scan(whole, size) == MORE
    assert pieced.scan(whole, len(wire)) == WHOLE


# --- odd replies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wire",
    [
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*0\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*4\r\n$1\r\na\r\n$0\r\n\r\n$1\r\na\r\n$0\r\n\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$-1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n%1\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n~2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n*2\r\n+1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n*2\r\n$03\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n*3\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        b"*1\r\n_\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b":1\r\n",
        b"-WRONGTYPE Operation against a key\r\n",
        b"nonsense\r\n",
        b"*1\r\n*2\r\n$99999999999\r\n",
    ],
)
def test_an_odd_reply_is_left_to_hiredis(wire: bytes) -> None:
    assert ReplyCutter().scan(bytearray(wire), len(wire)) == ODD
    for seed in range(10):
        assert outcome(wire, seed, cut=True) == outcome(wire, seed, cut=False)


@pytest.mark.parametrize("cut", [True, False])
def test_a_reply_that_is_not_a_list_of_entries_is_an_error(cut: bool) -> None:
    for wire in (b":1\r\n", b"*1\r\n$1\r\na\r\n", b"*1\r\n*2\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n"):
        with pytest.raises(ProtocolError, match="not a list of entries"):
            PageDecoder(cut=cut).feed(wire)
    with pytest.raises(ProtocolError, match="malformed"):
        PageDecoder(cut=cut).feed(b"?\r\n")
    with pytest.raises(ProtocolError, match="more than the requested reply"):
        PageDecoder(cut=cut).feed(reply_of(*[(b"1-1", [b"a", b"b"])]) + b"*")


@pytest.mark.parametrize("cut", [True, False])
def test_a_decoder_parses_successive_replies_and_pages_keep_their_bytes(cut: bool) -> None:
    decoder = PageDecoder(cut=cut)
    wires = [
        reply_of(*[(b"1-1", [b"a", b"x" * 100_000]), (b"2-1", [b"a", b"y"])]),
        reply_of(*[(b"3-1", [b"b", b"z" * 300_000]), (b"4-1", [b"c", b""])]),
        reply_of(),
        reply_of(*[(b"%d-1" % n, [b"a", b"%d" % n]) for n in range(10_000)]),
    ]

    pages = [decoder.feed(wire) for wire in wires]

    assert [len(page) if page is not None else -1 for page in pages] == [2, 2, 0, 10_000]
    assert pages[0] is not None
    assert pages[0].column(b"a").to_pylist() == [b"x" * 100_000, b"y"]
    assert pages[3] is not None
    assert pages[3].column(b"a").to_pylist() == [b"%d" % n for n in range(10_000)]
    assert decoder.weight == len(wires[-1])


def test_an_announced_count_allocates_nothing() -> None:
    wire = b"*999999999\r\n" + reply_of(*[(b"1-1", [b"a", b"b"])])[4:] + b"*2\r\n$999999999\r\n"
    decoder = PageDecoder(cut=True)

    assert decoder.feed(wire) is None
    assert len(decoder.room()) < 2**17
