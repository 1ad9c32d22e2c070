"""Streams as frames in one call: Python's spelling and values; mistakes raise before Spark starts."""

from __future__ import annotations

import datetime as dt
import doctest
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import headwater.spark
from headwater.common.model import StreamID
from headwater.errors import DeclarationError
from headwater.spark import embedded, frames
from headwater.spark.core.options import OPTIONS, parse_options
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "stream string, id string, n bigint"


def texts(**options: Any) -> dict[str, str]:
    return frames.option_texts(options, OPTIONS)


def test_each_option_of_the_source_has_a_spelling_in_python() -> None:
    for name in OPTIONS:
        assert frames.option_texts({frames.snake(name): "x"}, OPTIONS) == {name: "x"}
        assert frames.option_texts({name: "x"}, OPTIONS) == {name: "x"}
    assert len({frames.snake(name) for name in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("starting_id", StreamID(5, 1), "5-1"),
        ("starting_id", 1763715600000, "1763715600000"),
        ("starting_id", {"eu": "latest", "us": StreamID(5, 0)}, '{"eu": "latest", "us": "5-0"}'),
        ("starting_timestamp", dt.date(2026, 11, 21), "2026-11-21"),
        (
            "ending_timestamp",
            dt.datetime(2026, 11, 21, 9, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            "2026-11-21T09:00:00+02:00",
        ),
        ("fail_on_data_loss", False, "false"),
        ("max_entries_per_trigger", 100_000, "100000"),
        ("min_idle_time", dt.timedelta(minutes=5), "300000"),
        ("columns", ["id", "n"], '["id", "n"]'),
        ("columns", {"n", "id"}, '["id", "n"]'),
        ("archive", Path("archive", "orders"), "archive/orders"),
    ],
)
def test_values_are_pythons(option: str, value: object, text: str) -> None:
    assert list(texts(**{option: value}).values()) == [text]


def test_the_source_parses_the_texts_of_values() -> None:
    begin = dt.datetime(2026, 11, 21, 9, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    given = {"url": "redis://h", "stream": frames.option_text("stream", ["a,b", "c*"])} | texts(
        starting_timestamp={"a,b": begin}, columns=["n"], fail_on_data_loss=False
    )

    options = parse_options(given)

    assert options.streams == ("a,b", "c*")
    assert options.start_of("a,b") == StreamID(int(begin.timestamp() * 1000), 0)
    assert (options.columns, options.fail_on_data_loss) == (("n",), False)


def test_an_option_that_is_none_is_omitted() -> None:
    assert texts(starting_id=None) == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"starting_ids": "5"}, "unknown option 'starting_ids'. Did you mean 'starting_id'?"),
        ({"zzz": 1}, "unknown option 'zzz'. The options are url, stream, streams_pattern, "),
        ({"starting_id": 1.5}, "starting_id: 1.5 is of type float; an option is a text, a number"),
        ({"starting_id": {"s": b"5"}}, "starting_id: b'5' is of type bytes"),
        ({"starting_id": "5", "startingId": "6"}, "startingId is given twice"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        texts(**options)
    assert said in str(raised.value)


def test_a_store_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None
    monkeypatch.delenv("HEADWATER_URL", raising=False)
    with pytest.raises(DeclarationError, match=r"no store is named: give url=.*HEADWATER_URL"):
        headwater.spark.read(nobody, "orders")


def test_mistakes_are_reported_without_spark() -> None:
    nobody: Any = None
    with pytest.raises(DeclarationError, match="startingId: 'soon' is none of earliest"):
        headwater.spark.read_stream(nobody, "orders", url="redis://h", starting_id="soon")


def test_importing_the_package_imports_no_spark() -> None:
    program = (
        "import sys, headwater.spark\n"
        "headwater.spark.read, headwater.spark.write_stream, headwater.spark.session\n"
        "assert set(headwater.spark.__all__) <= set(dir(headwater.spark))\n"
        "print(*[name for name in ('pyspark', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("module", [frames, embedded])
def test_the_doctests_of_modules_pass(module: ModuleType) -> None:
    done = doctest.testmod(module)
    assert done.attempted >= 3
    assert done.failed == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reed'"):
        _ = headwater.spark.reed


# --- with Spark -----------------------------------------------------------------------------------

STORES = ("headwater",)


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.xdist_group("spark")
def test_frames_are_read_and_written_in_one_call(
    spark: SparkSession, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("eu", range(1, 6))
    shop.add("us", range(6, 11))
    monkeypatch.setenv("HEADWATER_URL", shop.url)

    both = headwater.spark.read(spark, ["eu", "us"], schema=SCHEMA, starting_id={"eu": "3"})
    assert sorted(row.n for row in both.collect()) == [3, 4, 5, 6, 7, 8, 9, 10]

    headwater.spark.write(both.select("n"), "all", maxlen="=3")
    assert shop.client.xlen("all") == 3

    copied: DataFrame = headwater.spark.read_stream(spark, "eu", schema="n bigint")
    query = headwater.spark.write_stream(
        copied,
        "copy, and more",
        checkpoint=tmp_path,
        name="copying",
        output_mode="append",
        available_now=True,
    )
    query.awaitTermination()
    assert query.name == "copying"
    assert shop.numbers("copy, and more") == [1, 2, 3, 4, 5]


def test_available_now_and_interval_exclude_each_other() -> None:
    nothing: Any = None
    with pytest.raises(DeclarationError, match="available_now and interval exclude each other"):
        headwater.spark.write_stream(
            nothing, "copy", checkpoint="c", available_now=True, interval=10
        )
