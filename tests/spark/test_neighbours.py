"""A query among others: its stream expires under it, other pipelines read the same stream, workers share its group."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.errors import DataLoss, HeadwaterError, PipelineError
from headwater.spark.pipeline import load, run
from tests.spark.members import member_query, owners
from tests.spark.queries import Query
from tests.spark.stores import Shop
from tests.waiting import eventually
from tests.worker.processes import one_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater", "redis-8.2")


def expire(shop: Shop, stream: str = "s") -> None:
    """Let a stream expire by its own clock, as EXPIRE does, and not by a command that deletes it."""
    assert shop.client.pexpire(stream, 1)
    eventually(lambda: not shop.client.exists(stream), "the expiry of the stream")


# --- a stream that expires ------------------------------------------------------------------------


@pytest.mark.parametrize("read", [0, 3])
def test_a_named_stream_that_expires_is_data_loss_and_goes_on_if_that_is_accepted(
    shop: Shop, warned: pytest.LogCaptureFixture, read: int
) -> None:
    # Given a query that has read some of a stream
    shop.add("s", range(1, 4))
    query = Query(shop, maxEntriesPerTrigger="3")
    query.batches()
    shop.add("s", range(4, 7 - read))

    # When the stream expires, then it is data loss, as if it had been deleted
    expire(shop)
    with pytest.raises(DataLoss, match=r"'s'.*the key is gone"):
        query.plan()

    # And a query that accepts it warns once, and reads what is added later
    continuing = Query(shop, log=query.log, failOnDataLoss="false")
    assert [number for batch in continuing.batches() for number in batch] == []
    shop.add("s", [9, 10])
    assert continuing.batches() == [[9, 10]]
    assert len(warned.messages) == 1


def test_a_stream_that_expires_before_it_is_read_is_data_loss(shop: Shop) -> None:
    # Given a batch that is planned
    shop.add("s", range(1, 4))
    query = Query(shop)
    assert query.plan()

    # When the stream expires before its executors read it, then they report it, also when Spark replays the batch
    expire(shop)
    for _try in range(2):
        with pytest.raises(
            DataLoss, match="0 of 3 entries after 0-0 up to 3-1 were found; the key is gone"
        ):
            query.read()


def test_a_stream_that_expires_and_is_written_again_is_data_loss(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    # Given a stream that was read, expires, and has other entries before the query looks again
    shop.add("s", range(1, 4))
    query = Query(shop)
    query.batches()
    expire(shop)
    shop.add("s", [7])

    # Then that is data loss: what was added before it expired is not known
    with pytest.raises(DataLoss, match="recreated"):
        query.plan()
    continuing = Query(shop, log=query.log, failOnDataLoss="false")
    assert continuing.batches() == [[7]]
    assert len(warned.messages) == 1


def test_a_stream_under_a_pattern_may_expire_once_it_was_read(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    # Given streams of a pattern, one of them read to its end
    shop.add("s.a", [1, 2])
    shop.add("s.b", [3])
    query = Query(shop, stream="s.*")
    assert sorted(query.batches()[0]) == [1, 2, 3]

    # When it expires, then the query goes on without a word
    expire(shop, "s.a")
    shop.add("s.b", [4])
    assert query.batches() == [[4]]
    assert warned.messages == []

    # When one expires with an entry that was not read, then it is data loss
    shop.add("s.b", [5])
    query.reader.latestOffset(query.start, query.reader.getDefaultReadLimit())
    expire(shop, "s.b")
    with pytest.raises(DataLoss, match=r"'s\.b'"):
        query.plan()


def test_a_stream_of_a_group_that_expires_starts_again_after_what_was_read(shop: Shop) -> None:
    # Given a query in a group, which has read all there was
    shop.add("s", range(1, 4))
    with member_query(shop) as query:
        assert query.read_all() == [1, 2, 3]

        # When the stream expires and is written again, then the query reads what is added
        expire(shop)
        assert query.read_all() == []
        shop.add("s", range(10, 13))
        assert query.read_all() == [10, 11, 12]

        # When it expires with a batch that was planned, then the loss is an error
        shop.add("s", range(20, 23))
        assert query.plan()
        expire(shop)
        with pytest.raises(DataLoss):
            query.read()


# --- two pipelines --------------------------------------------------------------------------------


def declare(
    directory: Path,
    shop: Shop,
    options: str = "",
    *,
    stream: str = "s",
    path: str = "t",
    archive: str | None = None,
) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "p.toml"
    kept = "" if archive is None else f'[archive]\npath = "{archive}"\n'
    file.write_text(f"""
[source.raw]
url = "{shop.url}"
stream = "{stream}"
schema = "id string, n bigint"
{options}

[table.t]
mode = "append"
sql = "SELECT n FROM raw"
path = "{path}"

{kept}
""")
    return file


def numbers(directory: Path) -> list[int]:
    files = [str(file) for file in directory.rglob("*.parquet")]
    return sorted(ds.dataset(files).to_table().column("n").to_pylist()) if files else []


def run_together(files: Iterable[Path]) -> list[HeadwaterError]:
    """Run pipelines at the same time; return their errors."""
    errors: list[HeadwaterError] = []

    def one(file: Path) -> None:
        try:
            run(load(file), once=True, report=lambda _line: None)
        except HeadwaterError as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_two_pipelines_on_one_stream_each_read_all_of_it(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given two pipelines, one of which archives and trims what nobody needs any more
    files = [
        declare(tmp_path / "a", shop),
        declare(tmp_path / "b", shop, archive="kept"),
    ]
    shop.add("s", range(1, 51))
    assert run_together(files) == []
    shop.add("s", range(51, 61))

    # When only the archiving one runs, and then the other
    assert run_together(files[1:]) == []
    assert run_together(files[:1]) == []

    # Then each has every entry once: nothing was trimmed that the other had not read
    assert numbers(tmp_path / "a" / "t") == list(range(1, 61))
    assert numbers(tmp_path / "b" / "t") == list(range(1, 61))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_two_pipelines_in_one_group_share_the_entries(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given two pipelines with names of their own in one group
    files = [
        declare(tmp_path / name, shop, f'group = "g"\nconsumerPrefix = "{name}"')
        for name in ("a", "b")
    ]
    shop.add("s", range(1, 201))

    # When they run at the same time
    assert run_together(files) == []

    # Then each entry is in one of the tables, and nothing is left
    assert sorted(numbers(tmp_path / "a" / "t") + numbers(tmp_path / "b" / "t")) == list(
        range(1, 201)
    )
    pending: Any = shop.client.xpending("s", "g")
    assert pending["pending"] == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_two_pipelines_cannot_write_one_table(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given two files with the same table
    table = str(tmp_path / "shared")
    files = [declare(tmp_path / name, shop, path=table) for name in ("a", "b")]
    shop.add("s", range(1, 31))

    # When both run, then one is refused, or finds all entries there; no row is there twice
    errors = run_together(files)
    assert all(isinstance(error, PipelineError) for error in errors), errors
    assert len(errors) <= 1
    assert numbers(Path(table)) == list(range(1, 31))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_a_pipeline_and_workers_in_one_group_handle_each_entry_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given a worker process in the group of a pipeline, and entries that are added while both run
    file = declare(tmp_path / "a", shop, 'group = "g"\nminIdleTime = "20s"', stream="orders")
    table = tmp_path / "a" / "t"

    def handled() -> list[int]:
        results: Any = shop.client.xrange("invoices")
        return [int(fields[b"order"]) for _id, fields in results]

    with one_worker(shop.url, SHOP_CLAIM_AFTER="20s"):
        for first in range(1, 401, 100):
            pipeline = shop.client.pipeline(transaction=False)
            for number in range(first, first + 100):
                fields = {"id": number, "n": number, "do": "yield"}
                pipeline.xadd("orders", fields, id=f"{number}-1")  # type: ignore[arg-type]
            adding = threading.Thread(target=pipeline.execute)
            adding.start()
            assert run_together([file]) == []
            adding.join()

        # When both have nothing left to do
        eventually(lambda: len(handled()) + len(numbers(table)) >= 400, "all entries")
        eventually(lambda: not owners(shop, "orders"), "the settlement of all entries")

    # Then each entry went to one of them
    assert sorted(handled() + numbers(table)) == list(range(1, 401))
    assert handled()
