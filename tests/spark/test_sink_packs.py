"""A stage's packs are published from any place, also those of an earlier version, and after a refusal."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from headwater.errors import Disconnected, HeadwaterError
from headwater.spark.core import connection
from headwater.spark.sink.chunks import Mover
from headwater.spark.sink.entries import words
from headwater.spark.sink.packs import is_pack, pack, packed, unpacked, without_first
from tests.spark.stores import Shop
from tests.spark.writes import Killed, Writing, killed_when, numbers, stages

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-7.0", "redis-8.2", "valkey-9.1")

MARKER = "{s}:hw:sink:q"
STAGE = "{s}:hw:stage:q:u"


def command(*arguments: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(arguments), words(*arguments))


def resp(request: bytes) -> Any:
    """Return the arguments of a request."""
    reader = hiredis.Reader()
    reader.feed(request)
    return reader.gets()


ROWS = [command(b"XADD", b"s", b"*", b"n", b"%d" % number) for number in (1, 2, 3)]


def test_a_pack_has_its_rows_and_their_place() -> None:
    written = pack(b"stage", ROWS, last=13, sets_ids=False)
    assert written.startswith(b"*9\r\n$4\r\nXADD\r\n$5\r\nstage\r\n$4\r\n13-0\r\n")
    entry = [b"13-0", [b"rows", b"3", b"ids", b"0", b"xadd", b"".join(ROWS)]]
    assert is_pack(entry)
    found = unpacked(entry)
    assert (found.last, found.rows, found.sets_ids) == (13, 3, False)
    assert without_first(found, 0) == found
    assert without_first(found, 2) == found._replace(rows=1, commands=ROWS[2])


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [
        ([600_000] * 5, 600_100),
        ([1, MEGABYTE, 1, 2 * MEGABYTE, 2 * MEGABYTE], 2 * MEGABYTE),
        ([MEGABYTE - 1, 0], MEGABYTE),
        ([100] * 30_000, MEGABYTE),
    ],
)
def test_a_long_row_is_in_pieces_no_longer_than_a_megabyte_or_its_longest_value(
    lengths: list[int], longest: int
) -> None:
    fields = [word for length in lengths for word in (b"n", b"x" * length)]
    rows = [command(b"XADD", b"s", b"*", *fields)]

    arguments = resp(pack(b"stage", rows, last=1, sets_ids=True))

    assert max(map(len, arguments)) <= longest
    assert all(arguments[3:])
    assert unpacked([arguments[2], arguments[3:]]).commands == b"".join(rows)


def test_rows_whose_pack_is_longer_than_a_value_may_be_are_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that accepts values of up to a megabyte, and rows that are longer than that together
    shop.client.config_set("proto-max-bulk-len", "1mb")
    try:
        query = Writing(shop, "a string, b string")
        rows = [{"a": "a" * 700_000, "b": "b" * 700_000}, *([{"a": "c" * 600_000, "b": ""}] * 3)]
        query.epoch(0, [rows])

        entries: Any = shop.client.xrange("s")
        assert [
            {name.decode(): value.decode() for name, value in e.items()} for _id, e in entries
        ] == rows

        # When a single value is longer, then the error says so, and nothing of its batch is written
        monkeypatch.setattr(connection, "PATIENCE_SECONDS", 0.2)
        with pytest.raises(Disconnected, match=r"longer than its proto-max-bulk-len .* about 2,5"):
            query.epoch(1, [[*rows, {"a": "d" * 2_500_000}]])
        assert shop.client.xlen("s") == 4
    finally:
        shop.client.config_set("proto-max-bulk-len", "512mb")


def test_rows_of_an_earlier_version_are_a_pack_with_the_same_commands() -> None:
    entries = [[b"%d-0" % n, [b"id", b"*", b"n", b"%d" % n]] for n in (1, 2, 3)]
    assert not is_pack(entries[0])
    found = packed(entries, [b"XADD", b"s"])
    assert (found.last, found.rows, found.sets_ids) == (3, 3, False)
    assert found.commands == b"".join(ROWS)
    assert packed([[b"1-0", [b"id", b"7-1", b"n", b"1"]]], [b"XADD", b"s"]).sets_ids


@pytest.mark.parametrize("published", [0, 2])
def test_a_batch_that_an_earlier_version_recorded_is_finished(shop: Shop, published: int) -> None:
    # Given a stage with an entry for each row, of which some are published
    for number in range(1, 6):
        shop.client.xadd(STAGE, {"id": "*", "n": number}, id=f"{number}-0")
    for number in range(1, published + 1):
        shop.client.xadd("s", {"n": number})
    done: Any = {"epoch": 3, "stages": '[["u",5]]', "stage": 0, "entries": 5}
    shop.client.hset(MARKER, mapping=done | {"position": published, "published": published})

    # When the batch is repeated, and another one follows
    query = Writing(shop)
    query.epoch(3, numbers(5))
    query.epoch(4, numbers(2, start=6))

    # Then each row is there once
    assert shop.numbers("s") == [1, 2, 3, 4, 5, 6, 7]
    assert stages(shop) == {}


def test_a_batch_continues_in_the_middle_of_a_pack(shop: Shop) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(5))
    with killed_when(lambda: shop.client.exists(MARKER)), pytest.raises(Killed):
        query.commit(messages, 0)
    shop.client.hset(MARKER, mapping={"position": 3, "published": 3})

    query.epoch(0, numbers(5))

    assert shop.numbers("s") == [4, 5]
    assert stages(shop) == {}


def test_a_stage_outlives_a_step_whose_rows_were_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a key that changes its type after it was looked at
    look = Mover._look

    def changing(mover: Mover, state: Any) -> Any:
        found = look(mover, state)
        shop.client.set("s", "text")
        return found

    query = Writing(shop)
    messages = query.stage(numbers(3))
    with monkeypatch.context() as changed:
        changed.setattr(Mover, "_look", changing)
        with pytest.raises(HeadwaterError, match=r"WRONGTYPE.* 0 of 3 entries of batch 0"):
            query.commit(messages, 0)
    assert list(stages(shop).values()) == [-1]

    # When that is repaired, then the next attempt writes each row
    shop.client.delete("s")
    query.epoch(0, numbers(3))
    assert shop.numbers("s") == [1, 2, 3]
    assert stages(shop) == {}
