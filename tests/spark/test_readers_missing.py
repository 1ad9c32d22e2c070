"""Missing entries, with readers called as Spark calls them: detected, classified and reported."""

from __future__ import annotations

import pytest

from headwater.errors import DataLoss
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_trimming_read_entries_is_not_data_loss(shop: Shop) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop)
    query.batches()

    shop.client.xtrim("s", maxlen=0, approximate=False)
    shop.add("s", range(101, 104))
    shop.delete("s", 50)

    assert query.batches() == [[101, 102, 103]]


def test_trimming_unread_entries_is_data_loss(shop: Shop) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop, maxEntriesPerTrigger="10")
    query.plan()
    shop.client.xtrim("s", maxlen=60, approximate=False)

    with pytest.raises(DataLoss, match=r"30 of 90 entries after .* were trimmed"):
        query.plan()


def test_accepted_loss_is_reported_once_and_counted(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop, maxEntriesPerTrigger="10", failOnDataLoss="false")
    query.plan()
    shop.client.xtrim("s", maxlen=60, approximate=False)

    numbers = [number for batch in query.batches() for number in batch]

    assert numbers == list(range(41, 101))
    assert len(warned.messages) == 1
    assert "30 of 90" in warned.messages[0]
    assert query.log[1]["s"]["added_from"] == 40
    assert query.log[-1]["s"]["added_to"] == 100


def test_loss_of_all_remaining_entries_is_reported_once_and_logged(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop, failOnDataLoss="false")
    query.plan()
    shop.add("s", range(11, 21))
    shop.client.xtrim("s", maxlen=0, approximate=False)

    assert query.batches() == [[]]
    assert Query(shop, log=query.log, failOnDataLoss="false").batches() == []
    assert len(warned.messages) == 1


def test_deletions_are_an_error_unless_they_are_accepted(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop)
    query.plan()
    shop.add("s", range(11, 21))
    shop.delete("s", 12, 13)

    with pytest.raises(DataLoss, match=r"2 of 10 entries .*ignoreDeletes=true"):
        query.plan()
    accepting = Query(shop, log=query.log, ignoreDeletes="true")
    assert accepting.batches() == [[11, *range(14, 21)]]
    assert len(warned.messages) == 1
    assert "2 of 10" in warned.messages[0]


def test_entries_removed_between_planning_and_reading_are_detected(shop: Shop) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop, minPartitions="4")
    query.plan()
    partitions = query.reader.partitions({}, query.log[-1])
    shop.client.xtrim("s", maxlen=95, approximate=False)

    with pytest.raises(DataLoss, match=r"5 of 25 entries after 0-0"):
        list(query.reader.read(partitions[0]))
    with pytest.raises(DataLoss, match="5 of 100 entries"):
        query.read()


@pytest.mark.parametrize("numbers", [range(1, 6), range(200, 206)])
def test_a_recreated_stream_is_data_loss(
    shop: Shop, numbers: range, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop)
    query.batches()
    shop.client.delete("s")
    shop.add("s", numbers)

    with pytest.raises(DataLoss, match="recreated"):
        query.plan()
    continuing = Query(shop, log=query.log, failOnDataLoss="false")
    assert continuing.batches() == [list(numbers)]
    assert len(warned.messages) == 1


def test_a_deleted_stream_is_data_loss_and_is_read_from_its_new_beginning(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop)
    query.batches()
    shop.client.delete("s")

    with pytest.raises(DataLoss, match="the key is gone"):
        query.plan()
    continuing = Query(shop, log=query.log, failOnDataLoss="false")
    assert continuing.batches() == [[]]
    assert len(warned.messages) == 1
    shop.add("s", [3, 4])
    assert continuing.batches() == [[3, 4]]
    assert len(warned.messages) == 1


def test_a_deletion_after_available_nows_end_is_reported_once_and_affects_no_batch(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    # Given a run of several batches, and a deletion after its end
    shop.add("s", range(1, 21))
    query = Query(shop, maxEntriesPerTrigger="5", ignoreDeletes="true")
    query.reader.prepareForTriggerAvailableNow()
    shop.add("s", range(21, 31))
    shop.delete("s", 25)

    # Then it reads the entries up to its end, and the next run reads the rest
    assert query.batches() == [list(range(first, first + 5)) for first in (1, 6, 11, 16)]
    later = Query(shop, log=query.log, ignoreDeletes="true")
    assert later.batches() == [[21, 22, 23, 24, 26, 27, 28, 29, 30]]
    assert len(warned.messages) == 1


def test_a_recreated_stream_is_data_loss_for_available_now_too(shop: Shop) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop)
    query.batches()
    shop.client.delete("s")
    shop.add("s", [5])

    later = Query(shop, log=query.log)
    later.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="recreated"):
        later.plan()


def test_a_stream_deleted_between_available_nows_start_and_its_first_batch_is_data_loss(
    shop: Shop,
) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop)
    query.reader.prepareForTriggerAvailableNow()
    shop.client.delete("s")

    with pytest.raises(DataLoss, match="the key is gone"):
        query.plan()


def test_a_trimmed_stream_deleted_before_its_first_batch_is_data_loss(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    shop.client.xtrim("s", maxlen=5, approximate=False)
    query = Query(shop)
    shop.client.delete("s")

    with pytest.raises(DataLoss, match="the key is gone"):
        query.plan()


def test_a_running_query_detects_a_recreated_stream_whose_counters_fit(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop, maxEntriesPerTrigger="5")
    query.plan()
    shop.client.delete("s")
    shop.add("s", [*range(1, 6), 7, 8])  # five up to the position, as before, and two after it

    with pytest.raises(DataLoss, match="entries-added went back from 10 to 7"):
        query.plan()
    # A new run cannot detect it: the checkpoint only has the counters, and these fit.
    assert Query(shop, log=query.log, failOnDataLoss="false").batches() == [[7, 8]]
    assert warned.messages == []


def test_reading_continues_after_a_position_that_a_changed_stream_still_has(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop)
    query.batches()
    shop.client.delete("s")
    shop.add("s", [50, 60, 200, 201])

    continuing = Query(shop, log=query.log, failOnDataLoss="false")

    assert continuing.batches() == [[200, 201]]
    assert len(warned.messages) == 1
    assert "the 2 after 100-1 are read and the 2 before it are not" in warned.messages[0]
