"""Streams that come and go under a pattern, with readers called as Spark calls them."""

from __future__ import annotations

import pytest

from headwater.errors import DataLoss, DeclarationError
from headwater.spark.core.queries import committed
from headwater.spark.log_mode import removed
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

REMOVED = ":hw:removed"


@pytest.fixture
def query(shop: Shop) -> Query:
    """A query of ``s.*`` that has read all entries of ``s.a`` and ``s.b``."""
    shop.add("s.a", [1, 2])
    shop.add("s.b", [3])
    query = Query(shop, stream="s.*")
    assert sorted(query.batches()[0]) == [1, 2, 3]
    return query


def test_a_stream_removed_after_it_was_read_is_dropped_and_the_query_goes_on(
    shop: Shop, query: Query, warned: pytest.LogCaptureFixture
) -> None:
    # Given a stream that was read to its end
    was = query.start["s.a"]

    # When it is deleted
    shop.client.delete("s.a")
    shop.add("s.b", [4])

    # Then the offset holds a short note of it, once
    assert query.batches() == [[4]]
    assert "s.a" not in query.start
    assert query.start[REMOVED] == {"s.a": [was["to"], 2]}
    assert not query.plan()
    assert warned.messages == []


def test_a_removed_stream_leaves_no_line_of_the_query_at_the_server(
    shop: Shop, query: Query
) -> None:
    query.plan()
    assert len(committed(shop.client, "s.a")) == 1

    shop.client.delete("s.a")
    query.plan()
    query.plan()

    assert committed(shop.client, "s.a") == []
    assert len(committed(shop.client, "s.b")) == 1


def test_a_stream_removed_with_unread_entries_is_data_loss(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    # Given a stream of which a part is read
    shop.add("s.a", range(1, 11))
    query = Query(shop, stream="s.*", maxEntriesPerTrigger="4")
    query.plan()

    # When it is deleted
    shop.client.delete("s.a")

    # Then its entries are counted, and a query that accepts the loss reports it once
    with pytest.raises(DataLoss, match=r"'s.a' was removed .* with 6 entries"):
        query.plan()
    shop.add("s.b", [11])
    accepting = Query(shop, log=query.log, stream="s.*", failOnDataLoss="false")
    assert accepting.batches() == [[11]]
    assert Query(shop, log=accepting.log, stream="s.*", failOnDataLoss="false").batches() == []
    assert len(warned.messages) == 1


def test_a_removal_while_no_query_ran_is_uncertain(
    shop: Shop, query: Query, warned: pytest.LogCaptureFixture
) -> None:
    # Given a stream that is removed between two runs
    shop.client.delete("s.a")
    shop.add("s.b", [4])

    # Then what it had since the first run is unknown: an error that names the option
    with pytest.raises(DataLoss, match=r"'s.a' was removed .*ignoreDeletes=true") as raised:
        Query(shop, log=query.log, stream="s.*").plan()
    assert "XDEL" not in str(raised.value)
    accepting = Query(shop, log=query.log, stream="s.*", ignoreDeletes="true")
    assert accepting.batches() == [[4]]
    assert len(warned.messages) == 1


def test_a_stream_that_is_renamed_and_renamed_back_continues(shop: Shop, query: Query) -> None:
    # Given a stream that was renamed away, and got an entry there
    shop.client.rename("s.a", "elsewhere")
    query.plan()
    shop.add("elsewhere", [4])

    # When it comes back, also to a later run
    shop.client.rename("elsewhere", "s.a")

    # Then only what is new is read
    later = Query(shop, log=query.log, stream="s.*")
    assert later.batches() == [[4]]
    assert REMOVED not in later.start


def test_a_loss_while_a_stream_was_away_is_reported(shop: Shop, query: Query) -> None:
    shop.client.rename("s.a", "elsewhere")
    query.plan()
    shop.add("elsewhere", [4, 5])
    shop.client.xtrim("elsewhere", maxlen=1, approximate=False)
    shop.client.rename("elsewhere", "s.a")

    with pytest.raises(DataLoss, match="1 of 2 entries"):
        query.plan()


@pytest.mark.parametrize("numbers", [[4], [4, 5], [4, 5, 6]])
def test_a_stream_created_again_is_read_from_its_beginning(
    shop: Shop, query: Query, numbers: list[int], warned: pytest.LogCaptureFixture
) -> None:
    shop.client.delete("s.a")
    query.plan()

    shop.add("s.a", numbers)

    assert query.batches() == [numbers]
    assert warned.messages == []


def test_a_replay_of_the_batch_that_dropped_a_stream_reads_the_same(
    shop: Shop, query: Query
) -> None:
    shop.client.delete("s.a")
    shop.add("s.b", [4])
    query.plan()

    replay = Query(shop, log=query.log, stream="s.*")

    assert replay.read() == [4]
    assert not replay.plan()


def test_a_stream_that_came_and_went_between_two_looks_leaves_nothing(
    shop: Shop, query: Query
) -> None:
    shop.client.xgroup_create("s.c", "g", mkstream=True)
    query.plan()
    shop.client.delete("s.c")
    query.plan()

    assert set(query.start) == {":hw:query", "s.a", "s.b"}


def test_the_streams_removed_last_are_remembered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed, "MOST", 3)
    query = Query(shop, stream="s.*")
    for n in range(5):
        shop.add(f"s.{n}", [n])
        query.plan()
        shop.client.delete(f"s.{n}")
        query.plan()

    assert list(query.start[REMOVED]) == ["s.2", "s.3", "s.4"]


def test_available_now_drops_a_removed_stream(shop: Shop, query: Query) -> None:
    shop.add("s.b", [4])
    later = Query(shop, log=query.log, stream="s.*", ignoreDeletes="true")
    later.reader.prepareForTriggerAvailableNow()
    shop.client.delete("s.a")

    assert later.batches() == [[4]]
    assert list(later.start[REMOVED]) == ["s.a"]


def test_a_named_stream_that_is_removed_is_data_loss(shop: Shop) -> None:
    shop.add("s", [1])
    query = Query(shop)
    query.batches()
    shop.client.delete("s")

    with pytest.raises(DataLoss, match="the key is gone"):
        query.plan()


@pytest.mark.parametrize("noted", [[], {"s.a": 5}, {"s.a": ["5-0"]}, {"s.a": ["x", 1]}])
def test_a_note_that_no_query_wrote_is_refused(shop: Shop, query: Query, noted: object) -> None:
    log = [query.start | {REMOVED: noted}]

    with pytest.raises(DeclarationError, match="not from a query in log mode, at ':hw:removed'"):
        Query(shop, log=log, stream="s.*").plan()
