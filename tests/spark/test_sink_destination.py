"""A stream that was emptied or restored is noticed by the query that writes to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.errors import DataLoss
from tests.spark.stores import Shop
from tests.spark.test_access import as_user, rules
from tests.spark.writes import Writing, numbers, stages

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-7.0", "redis-8.2", "valkey-9.1")

MARKER = "{s}:hw:sink:q"

LOST = "'s' was deleted, created again, or restored from an older copy: after batch 1 of query q"


def emptied(shop: Shop) -> None:
    shop.client.delete("s")


def created_again(shop: Shop) -> None:
    """Leave a stream with a higher last id, and fewer entries."""
    shop.client.delete("s")
    shop.client.xadd("s", {"of": "another"}, id="9999999999999-0")


def restored(shop: Shop) -> None:
    """Replace the stream by the copy that was made after the first batch."""
    shop.client.rename("copy", "s")


@pytest.mark.parametrize("lose", [emptied, created_again, restored])
def test_a_batch_is_refused_after_the_stream_has_lost_earlier_ones(
    shop: Shop, lose: Callable[[Shop], None]
) -> None:
    # Given two batches, and a stream that has lost them, or one of them
    query = Writing(shop)
    query.epoch(0, numbers(5))
    shop.client.copy("s", "copy")
    query.epoch(1, numbers(5, start=6))
    lose(shop)
    before = shop.client.xlen("s")

    # When the next batch is written, then it is refused, again and again, and nothing is written
    for _ in range(2):
        with pytest.raises(DataLoss, match=LOST):
            query.epoch(2, numbers(5, start=11))
    assert shop.client.xlen("s") == before


def flushed(shop: Shop) -> None:
    shop.client.flushall()


def marker_evicted(shop: Shop) -> None:
    shop.client.delete(MARKER)


def store_restored(shop: Shop) -> None:
    """Replace the stream and the marker by the copies that were made after the first batch."""
    shop.client.rename("copy", "s")
    shop.client.rename("copied marker", MARKER)


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (flushed, "has no batch of query q on record"),
        (marker_evicted, "has no batch of query q on record"),
        (store_restored, "has no batch after 0 of query q on record"),
    ],
)
def test_a_batch_is_refused_if_the_one_before_is_not_on_record(
    shop: Shop, lose: Callable[[Shop], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a store that has lost the stream together with the record, or the record alone
    query = Writing(shop)
    query.epoch(0, numbers(5))
    shop.client.copy("s", "copy")
    shop.client.copy(MARKER, "copied marker")
    query.epoch(1, numbers(5, start=6))
    lose(shop)
    left = shop.client.xlen("s")

    # When the next batch is written, then it is refused, again and again, and nothing is written
    for _ in range(2):
        with pytest.raises(DataLoss, match=rf"{said} \({MARKER}\), and this is batch 2"):
            query.epoch(2, numbers(5, start=11))
    assert shop.client.xlen("s") == left
    assert stages(shop) == {}

    # And with the option it is a warning once, and the option can be removed
    accepting = Writing(shop, failOnDataLoss="false")
    accepting.epoch(2, numbers(5, start=11))
    accepting.epoch(3, numbers(5, start=16))
    query.epoch(4, numbers(5, start=21))
    assert shop.client.xlen("s") == left + 15
    assert caplog.text.count(said) == 1


def test_with_the_option_a_loss_is_a_warning_once(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    query = Writing(shop, failOnDataLoss="false")
    query.epoch(0, numbers(5))
    query.epoch(1, numbers(5, start=6))
    emptied(shop)

    query.epoch(2, numbers(5, start=11))
    query.epoch(3, numbers(5, start=16))

    assert shop.numbers("s") == list(range(11, 21))
    assert caplog.text.count(LOST) == 1


def test_trimming_deleting_and_other_writers_are_no_loss(shop: Shop) -> None:
    # Given a stream that others write to, and that is trimmed, to nothing at last
    query = Writing(shop)
    for epoch in range(4):
        query.epoch(epoch, numbers(5, start=1 + 5 * epoch))
        shop.client.xadd("s", {"n": 0})
        shop.client.xtrim("s", maxlen=epoch % 2, approximate=False)
    entries: Any = shop.client.xrange("s")
    shop.client.xdel("s", *(id_ for id_, _fields in entries))

    # When the next batch is written, then it is
    query.epoch(4, numbers(5, start=100))
    assert shop.numbers("s") == list(range(100, 105))


def test_a_loss_in_the_middle_of_a_batch_is_noticed_at_its_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a stream that is deleted between two chunks of a batch
    monkeypatch.setattr("headwater.spark.sink.appending.FLUSH_ROWS", 4)
    query = Writing(shop)
    query.epoch(0, numbers(5))
    from headwater.spark.sink.chunks import Mover

    move, moved = Mover.move, []

    def losing(mover: Any, state: Any) -> Any:
        moved.append(state)
        if len(moved) == 2:
            emptied(shop)
        return move(mover, state)

    monkeypatch.setattr(Mover, "move", losing)

    # When the batch is complete, then the loss is reported
    with pytest.raises(DataLoss, match=LOST):
        query.epoch(1, numbers(12, start=6))

    # And also after Spark has repeated that batch, which is written
    monkeypatch.setattr(Mover, "move", move)
    query.epoch(1, numbers(12, start=6))
    for _ in range(2):
        with pytest.raises(DataLoss, match=LOST):
            query.epoch(2, numbers(5, start=20))

    # And no more if the option accepts it
    accepting = Writing(shop, failOnDataLoss="false")
    accepting.epoch(2, numbers(5, start=20))
    query.epoch(3, numbers(5, start=25))


def test_a_batch_that_was_written_is_not_noted_again_after_a_loss(shop: Shop) -> None:
    # Given a stream that was lost, before Spark repeats a batch that was written
    query = Writing(shop)
    query.epoch(0, numbers(5))
    query.epoch(1, numbers(5, start=6))
    emptied(shop)

    # When it repeats it, then nothing is written or noted, and the next batch is refused
    query.epoch(1, numbers(5, start=6))
    assert not shop.client.exists("s")
    with pytest.raises(DataLoss, match=LOST):
        query.epoch(2, numbers(5, start=11))


def test_who_names_transactions_may_start_over_with_a_new_stream(shop: Shop) -> None:
    from headwater.spark.sink.options import parse_options
    from headwater.spark.sink.publishing import publish_all

    options = {"url": shop.url, "stream": "s", "txnAppId": "nightly", "txnVersion": "1"}
    given = parse_options(options, streaming=False)
    for version in (1, 2, 3):
        publish_all(given, "nightly", version, {"s": []})
        shop.client.delete("s")


def test_who_names_transactions_may_leave_out_numbers(shop: Shop) -> None:
    for version in (20261101, 20261103):
        options = {"txnAppId": "nightly", "txnVersion": str(version), "failOnDataLoss": "true"}
        Writing(shop, **options).batch(numbers(2))

    assert shop.numbers("s") == [1, 2, 1, 2]


def test_without_the_right_to_read_counters_batches_are_written(shop: Shop) -> None:
    allowed = [rule for rule in rules("sink, exactly once") if "xinfo" not in rule]
    user = as_user(shop, *(rule for rule in allowed if "xcounters" not in rule))
    query = Writing(user)
    query.epoch(0, numbers(5))
    query.epoch(1, numbers(5, start=6))

    assert shop.numbers("s") == list(range(1, 11))
