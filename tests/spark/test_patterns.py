"""The option ``streamsPattern``: a regular expression for the names of streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands.globs import matches
from headwater.errors import DeclarationError, PipelineError
from headwater.spark.core.options import parse_options
from headwater.spark.core.patterns import StreamPattern
from headwater.spark.pipeline import load
from headwater.spark.source import HeadwaterSource
from tests.spark.queries import SCHEMA, Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_a_query_reads_the_streams_whose_whole_name_matches(shop: Shop) -> None:
    # Given streams of which two match
    for number, stream in enumerate(["orders:eu", "orders:us", "orders:eu:old", "a.orders:eu"]):
        shop.add(stream, [number])
    query = Query(shop, stream="", streamsPattern="orders:(eu|us|ap)")
    assert sorted(query.batches()[0]) == [0, 1]

    # When another one is created
    shop.add("orders:ap", [9])

    # Then it is found, and a batch finds all three
    assert query.batches() == [[9]]
    reader = HeadwaterSource({"url": shop.url, "streamsPattern": "orders:(eu|us|ap)"}).reader(
        SCHEMA
    )
    found = [
        n for task in reader.partitions() for b in reader.read(task) for n in b["n"].to_pylist()
    ]
    assert sorted(found) == [0, 1, 9]


@given(
    st.sampled_from(
        ["a:b", "ab*", "ab+c", "a{2}b", "(?i)ab", "a|b", "a.b", "[ab]c", "abc", "a?b", "ab{0}c"]
    ),
    st.text("abcABC:.", max_size=5),
)
def test_the_glob_of_a_search_misses_no_name(text: str, name: str) -> None:
    pattern = StreamPattern(text, regular=True)
    if pattern.matches(name):
        assert matches(pattern.glob.encode(), name.encode())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"streamsPattern": "orders.(", "stream": None},
            r"streamsPattern: 'orders.\(' is not a valid regular",
        ),
        ({"streamsPattern": "", "stream": None}, "the pattern is empty"),
        ({"streamsPattern": "x" * 10_001, "stream": None}, "more than 10000 characters"),
        ({"streamsPattern": "a.*"}, "stream and streamsPattern exclude each other"),
        ({"stream": "a.*,b.*"}, "a regular expression with the option streamsPattern"),
    ],
)
def test_mistakes_name_the_option(options: dict[str, str | None], said: str) -> None:
    given_ = {"url": "redis://localhost", "stream": "s"} | options
    with pytest.raises(DeclarationError, match=said):
        parse_options({name: text for name, text in given_.items() if text is not None})


def test_dead_letters_of_a_regular_expression_must_be_named(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[source.raw]\nurl = "redis://localhost"\nstreamsPattern = "a|b"\nschema = "n bigint"\n'
        '[table.t]\nsql = "SELECT n FROM raw"\nmode = "append"\nsink = "parquet"\npath = "t"\n'
        '[dead_letters]\npath = "dead"\n'
    )
    with pytest.raises(PipelineError, match=r"name them in dead_letters.streams"):
        load(file)
    file.write_text(file.read_text() + 'streams = ["{a}.dead"]\n')
    load(file)
