"""Log mode inside Spark: what only Spark can show, and difficult input."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from headwater.spark.core.queries import committed
from tests.samples import sampled
from tests.spark.stores import Shop
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def batch(spark: SparkSession, shop: Shop, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("headwater").options(**({"url": shop.url, "stream": "s"} | options))
    return (reader.schema(schema) if schema else reader).load()


def stream(spark: SparkSession, shop: Shop, schema: str, **options: Any) -> DataFrame:
    given = {"url": shop.url, "stream": "s"} | options
    return spark.readStream.format("headwater").options(**given).schema(schema).load()


class Collected:
    """A streaming query whose batches are stored as lists."""

    def __init__(self, frame: DataFrame, checkpoint: Path, mode: str = "append") -> None:
        self.batches: list[list[Any]] = []
        writer = frame.writeStream.outputMode(mode).foreachBatch(self._keep)
        self.query: StreamingQuery = writer.option("checkpointLocation", str(checkpoint)).start()

    def _keep(self, frame: DataFrame, _number: int) -> None:
        self.batches.append(frame.collect())

    def rows(self) -> list[Any]:
        """Return all rows so far, after all existing entries have been read."""
        self.query.processAllAvailable()
        return [row for rows in self.batches for row in rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.query.stop()


# --- columns and filters --------------------------------------------------------------------------


def test_inferred_columns_can_be_queried_and_used_in_a_streaming_query(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101), price="1.50", day="2013-01-31", lines='[{"item": "tea"}]')

    frame = batch(spark, shop, inferSchema="true")

    assert frame.schema.simpleString() == (
        "struct<stream:string,id:string,timestamp:timestamp,n:bigint,price:double,day:date,"
        "lines:array<struct<item:string>>,_rescued:string>"
    )
    total = frame.where("day = DATE'2013-01-31'").selectExpr("sum(n * price)", "max(lines[0].item)")
    assert tuple(total.collect()[0]) == (7575.0, "tea")
    given = spark.readStream.format("headwater").options(url=shop.url, stream="s")
    with Collected(given.schema(frame.schema).load(), tmp_path / "a") as collected:
        assert sum(row.n for row in collected.rows()) == 5050
    with pytest.raises(Exception, match="inferSchema is for batch reads"):
        given.option("inferSchema", "true").load().writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "b")
        ).start().processAllAvailable()


def test_pushed_filters_reduce_the_entries_that_are_read(spark: SparkSession, shop: Shop) -> None:
    shop.add("s", range(1, 1001))
    shop.add("t", range(1, 1001))
    spark.conf.set(PUSHDOWN, "true")
    some = (
        "stream = 's' AND timestamp >= TIMESTAMP'1970-01-01 00:00:00.9Z' "
        "AND timestamp < TIMESTAMP'1970-01-01 00:00:00.9505Z' AND id > '92'"
    )

    def where(condition: str) -> DataFrame:
        # Loaded for each query, because Spark keeps the pushed filters in a loaded frame.
        return batch(spark, shop, stream="s,t", pushdown="true").where(condition)

    try:
        frame: Any = where(some)
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert sorted(row.id for row in frame.collect()) == [f"{n}-1" for n in range(920, 951)]
        # Spark's filter contains only what the reader does not handle completely.
        applied = plan.partition("Filter ")[2].partition("\n")[0]
        assert "id#" in applied
        assert "timestamp#" not in applied
        assert where("id IN ('5-1', '7-1')").count() == 4
        assert where("id = '5-1' OR stream = 's'").count() == 1001
    finally:
        spark.conf.unset(PUSHDOWN)


def test_without_its_setting_pushdown_is_refused_with_the_settings_name(
    spark: SparkSession, shop: Shop
) -> None:
    shop.add("s", [1])
    # Given a session without the setting, whatever other tests' sessions have set
    bare = spark.newSession()
    bare.conf.set(PUSHDOWN, "false")

    with pytest.raises(Exception, match=PUSHDOWN):
        batch(bare, shop, pushdown="true").where("id = '1-1'").count()


# --- changes of streams during a query ------------------------------------------------------------


def test_late_and_unordered_events_count_within_the_watermark(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    from pyspark.sql.functions import window

    start = dt.datetime(2013, 1, 31, tzinfo=dt.UTC)

    def add(*minutes: int) -> None:
        for minute in minutes:
            shop.client.xadd("s", {"at": (start + dt.timedelta(minutes=minute)).isoformat()})

    add(3, 1, 12, 7, 2)
    events = stream(spark, shop, "at timestamp").withWatermark("at", "10 minutes")
    counted = events.groupBy(window("at", "5 minutes").alias("five")).count()
    with Collected(counted, tmp_path, mode="append") as collected:
        assert collected.rows() == []
        add(4, 31)  # late, but within the delay; then the watermark moves to 21
        collected.rows()
        add(6, 0, 45)  # 6 and 0 are too late; the watermark moves to 35
        found = {row.five.start.minute: row["count"] for row in collected.rows()}

    assert found == {0: 4, 5: 1, 10: 1, 30: 1}


def test_two_queries_on_one_stream_both_read_everything(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 501))

    with (
        Collected(stream(spark, shop, "n int"), tmp_path / "a") as a,
        Collected(stream(spark, shop, "n int", maxEntriesPerTrigger=120), tmp_path / "b") as b,
    ):
        a.rows()
        shop.add("s", range(501, 601))
        numbers = [sorted(row.n for row in one.rows()) for one in (a, b)]

    assert numbers == [list(range(1, 601))] * 2
    assert max(len(rows) for rows in b.batches) == 120
    assert len(committed(shop.client, "s")) == 2


def test_a_running_query_stops_if_unread_entries_are_trimmed(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101))
    with Collected(stream(spark, shop, "n int"), tmp_path) as collected:
        collected.rows()
        shop.client.xtrim("s", maxlen=0, approximate=False)  # trimming read entries is allowed
        shop.add("s", range(101, 201))
        assert len(collected.rows()) == 200
        pipeline = shop.client.pipeline(transaction=True)
        for number in range(201, 301):
            pipeline.xadd("s", {"n": number}, id=f"{number}-1")
        pipeline.xtrim("s", maxlen=25, approximate=False)
        pipeline.execute()

        with pytest.raises(Exception, match=r"DataLoss: stream 's': 75 of 100 entries after 200-1"):
            collected.rows()
    assert len([row for rows in collected.batches for row in rows]) == 200


def test_streams_that_a_pattern_finds_later_are_read_completely(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    for number in range(20):
        shop.add(f"orders.{number}", range(1, 11))
    frame = stream(spark, shop, "stream string, n int", stream="orders.*", maxEntriesPerTrigger=90)

    with Collected(frame, tmp_path) as collected:
        assert len(collected.rows()) == 200
        shop.add("orders.late", range(1, 8))
        shop.add("payments", [1])
        # A query looks for new streams once a second.
        eventually(lambda: len(collected.rows()) > 200)
        rows = collected.rows()

    assert len(rows) == 207
    assert sorted(row.n for row in rows if row.stream == "orders.late") == list(range(1, 8))


def test_a_checkpoint_of_another_stream_is_one_clear_error(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", [1])
    shop.add("t", [1])
    with Collected(stream(spark, shop, "n int"), tmp_path) as collected:
        collected.rows()

    other = Collected(stream(spark, shop, "n int", stream="t"), tmp_path)
    with (
        other,
        pytest.raises(Exception, match="DeclarationError: stream: the checkpoint belongs to s"),
    ):
        other.rows()
    assert other.batches == []


# --- many entries ---------------------------------------------------------------------------------

ENTRIES = sampled(300_000)
ODD = [b"", b"\n", b"a\r\nb\n", b"\xff\x00\xfe", "né\u2028".encode(), b"plain", b"$-1\r\n"]


def _body(number: int) -> dict[str, bytes]:
    """Return fields of which some are missing, empty, binary, or contain line ends."""
    body = {"n": b"%d" % number, "odd": ODD[number % len(ODD)] + b"%d" % (number % 3)}
    if number % 5:
        body["maybe"] = ODD[number % 4]
    if number % 1000 == 0:
        body["big"] = bytes(range(256)) * 20
    return body


def _fill(shop: Shop) -> None:
    """Add entries in packed commands; a client's pipeline would take half a minute more."""
    connection: Any = shop.client.connection_pool.get_connection()
    step = min(ENTRIES, 10_000)
    for first in range(0, ENTRIES, step):
        packed = []
        for number in range(first, first + step):
            words = [b"XADD", b"s", b"%d-0" % (number + 1)]
            for pair in _body(number).items():
                words += (pair[0].encode(), pair[1])
            packed.append(b"*%d\r\n" % len(words))
            packed += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        connection.send_packed_command([b"".join(packed)])
        for _reply in range(step):
            connection.read_response()
    shop.client.connection_pool.release(connection)


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_many_odd_entries_are_read_unchanged(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    _fill(shop)
    schema = "id string, n bigint, odd binary, maybe binary, big binary, _rescued string"

    def summed(frame: DataFrame) -> list[Any]:
        hashed = frame.selectExpr("*", "substr(sha2(odd, 256), 1, 8) AS odd_hash").selectExpr(
            "*", "conv(odd_hash, 16, 10) * (n % 1000) AS mixed"
        )
        rows = hashed.agg(
            f.count("n"),
            f.sum("n"),
            f.count("maybe"),
            f.sum(f.length("maybe")),
            f.count("big"),
            f.min(f.md5("big")),
            f.count("_rescued"),
            f.expr("cast(sum(mixed) AS decimal(38, 0))"),
        ).collect()
        return [*rows[0]]

    found = summed(batch(spark, shop, schema, minPartitions=8))

    assert [int(value) if i != 5 else value for i, value in enumerate(found)] == _expected(shop)
    frame = stream(spark, shop, "n bigint, odd binary", maxEntriesPerTrigger=ENTRIES * 3 // 10)
    sizes: list[int] = []

    def keep(part: DataFrame, _number: int) -> None:
        sizes.append(part.count())

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sizes == [ENTRIES * 3 // 10] * 3 + [ENTRIES // 10]


def _expected(shop: Shop) -> list[Any]:
    """Compute the same sums with redis-py and a loop."""
    count = total = maybe = length = big = mixed = 0
    smallest = None
    start = "-"
    while True:
        page: Any = shop.client.xrange("s", min=start, count=10_000)
        if not page:
            return [count, total, maybe, length, big, smallest, 0, mixed]
        for _id, fields in page:
            number = int(fields[b"n"])
            count, total = count + 1, total + number
            if b"maybe" in fields:
                maybe, length = maybe + 1, length + len(fields[b"maybe"])
            if b"big" in fields:
                big += 1
                digest = hashlib.md5(fields[b"big"]).hexdigest()
                smallest = digest if smallest is None else min(smallest, digest)
            odd = hashlib.sha256(fields[b"odd"]).hexdigest()[:8]
            mixed += int(odd, 16) * (number % 1000)
        start = f"({page[-1][0].decode()}"
