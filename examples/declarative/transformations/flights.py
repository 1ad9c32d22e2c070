"""Flights as tables, with Spark's Declarative Pipelines.

flights ──▶ bronze ──▶ checked (a view) ──▶ silver ──▶ gold_days
                           │                  └─────▶ the stream late
                           └──────────────▶ rejected

FLIGHTS_URL      the store, redis://127.0.0.1:6379
FLIGHTS_ARCHIVE  a directory with the archive of the stream, if there is one
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

URL = os.environ.get("FLIGHTS_URL", "redis://127.0.0.1:6379")
SOURCE = {"url": URL, "stream": "flights"}
if os.environ.get("FLIGHTS_ARCHIVE"):
    # With the archive, a full refresh has the entries that were trimmed, too.
    SOURCE["archive"] = os.environ["FLIGHTS_ARCHIVE"]

SCHEMA = """
    id string, carrier string, origin string, dest string, time_hour timestamp, sched_dep_time int,
    dep_delay int, _rescued string
"""

COLUMNS = ("id", "carrier", "origin", "dest", "time_hour", "sched_dep_time", "dep_delay")

RULES = {
    "fits_its_types": "_rescued IS NULL",
    "departs_on_a_clock": "sched_dep_time BETWEEN 0 AND 2400 AND sched_dep_time % 100 < 60",
}


@dp.table
def bronze() -> DataFrame:
    """Every entry, as it came."""
    return spark.readStream.format("headwater").options(**SOURCE).schema(SCHEMA).load()


@dp.temporary_view
def checked() -> DataFrame:
    """The expectations: every entry with the names of the rules that it breaks. A rule that is NULL is broken.

    With select, not withColumn: Spark would look up the table at once, and not know that it must be made before.
    """
    broken = [
        f.when(~f.coalesce(f.expr(rule), f.lit(False)), f.lit(name)) for name, rule in RULES.items()
    ]
    names = f.filter(f.array(*broken), lambda name: name.isNotNull())
    return spark.readStream.table("bronze").select("*", names.alias("broken"))


@dp.table
def silver() -> DataFrame:
    """The entries that break no rule."""
    return spark.readStream.table("checked").where("size(broken) = 0").selectExpr(*COLUMNS)


@dp.table
def rejected() -> DataFrame:
    """The others, with the rules that they break."""
    return spark.readStream.table("checked").where("size(broken) > 0")


@dp.materialized_view
def gold_days() -> DataFrame:
    """The mean delay of each day at each airport."""
    return (
        spark.read.table("silver")
        .groupBy(f.to_date("time_hour").alias("day"), "origin")
        .agg(f.count(f.lit(1)).alias("flights"), f.avg("dep_delay").alias("mean_dep_delay"))
    )


dp.create_sink("late", "headwater", {"url": URL, "stream": "late"})


@dp.append_flow(target="late")
def late() -> DataFrame:
    """Flights that left more than two hours late, as entries of the stream ``late``, each once."""
    return (
        spark.readStream.table("silver")
        .where("dep_delay > 120")
        .selectExpr("origin", "dest", "carrier", "dep_delay")
    )
