"""Options are refused before anything is connected, and never show a password."""

from __future__ import annotations

import pickle

import pytest

from headwater.errors import DeclarationError
from headwater.model import StreamID
from headwater.spark.core.options import SourceOptions, parse_options

URL = "redis://localhost:6379"


def parsed(**given: str) -> SourceOptions:
    return parse_options({"url": URL, "stream": "orders"} | given)


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("orders", ("orders",)),
        ("orders, payments ,orders", ("orders", "payments")),
        ('["a,b", "c*"]', ("a,b", "c*")),
        (r"literal\*", (r"literal\*",)),
    ],
)
def test_streams_are_named_one_by_one_or_as_a_list(text: str, streams: tuple[str, ...]) -> None:
    options = parsed(stream=text)

    assert options.streams == streams
    assert options.pattern is None


@pytest.mark.parametrize("text", ["orders.*", "order?", "[ab]rders"])
def test_a_glob_is_a_pattern(text: str) -> None:
    assert parsed(stream=text).pattern == text


def test_a_pattern_with_a_comma_is_refused_rather_than_guessed_at() -> None:
    with pytest.raises(DeclarationError, match="stands alone"):
        parsed(stream="orders.*,payments")


def test_starting_ids_are_one_for_all_or_one_for_each_stream() -> None:
    assert parsed(startingId="latest").start_of("orders") == "latest"
    assert parsed(startingId="5").start_of("orders") == StreamID(5, 0)
    each = parsed(stream="a,b", startingId='{"a": "7-1"}')
    assert each.start_of("a") == StreamID(7, 1)
    assert each.start_of("b") == "earliest"


def test_names_and_words_are_compared_without_regard_to_case() -> None:
    options = parse_options(
        {"URL": URL, "STREAM": "orders", "failondataloss": "FALSE", "Mode": "FailFast"}
    )

    assert not options.fail_on_data_loss
    assert options.mode == "failfast"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startngId": "5"}, "Did you mean 'startingId'"),
        ({"startingId": "5", "startingTimestamp": "5"}, "exclude each other"),
        ({"endingId": "5", "endingTimestamp": "5"}, "exclude each other"),
        ({"endingId": "earliest"}, "neither latest nor an id"),
        ({"endingTimestamp": "noon"}, "is no time: ISO 8601"),
        ({"startingTimestamp": "1969-12-31"}, "before 1970"),
        ({"startingTimestamp": '{"other": "5"}'}, "names other"),
        ({"maxBytesPerTrigger": "4 MB"}, "no whole number of at least 1"),
        ({"columns": "n*"}, "is a pattern"),
        ({"minIdleTime": "soon", "group": "g"}, "no duration like 500ms"),
        ({"minIdleTime": "5s"}, "no group is named"),
        ({"endingId": "5", "group": "g"}, "does nothing with group"),
        ({"ignoreDeletes": "true", "group": "g"}, "does nothing with group"),
        ({"deadLetterStream": "d", "group": "g"}, "does nothing without maxDeliveries"),
        (
            {"deadLetterStream": "orders", "group": "g", "maxDeliveries": "2"},
            "is read by this query itself",
        ),
        ({"samplingEntries": "50"}, "does nothing without inferSchema=true"),
        ({"samplingEntries": "50", "inferSchema": "false"}, "does nothing without inferSchema"),
        ({"path": "x"}, "The options are url, stream"),
        ({"startingId": "yesterday"}, "none of earliest, latest"),
        ({"startingId": "99999999999999999999"}, "fit 64 bits"),
        ({"startingId": '{"other": "5-0"}'}, "names other"),
        ({"startingId": '{"orders": [5]}'}, "no JSON object"),
        ({"maxEntriesPerTrigger": "0"}, "no whole number of at least 1"),
        ({"minPartitions": "many"}, "no whole number of at least 1"),
        ({"failOnDataLoss": "no"}, "neither true nor false"),
        ({"codec": "jsn"}, "Did you mean 'json'"),
        ({"mode": "strict"}, "none of permissive, failfast, dropmalformed"),
        ({"stream": " "}, '"stream" is missing'),
        ({"stream": "a,,b"}, "empty stream"),
        ({"url": ""}, '"url" is missing'),
        ({"url": "localhost:6379"}, "begins with none of"),
        (
            {"url": "redis+cluster://:pw@one:7000,two:7000"},
            r"\*\*\*@one:7000,two:7000' names a cluster",
        ),
        ({"url": "valkeys+cluster://one"}, "not of a cluster"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(given: dict[str, str], said: str) -> None:
    with pytest.raises(DeclarationError, match=said.replace("(", r"\(")):
        parsed(**given)


@pytest.mark.parametrize("url", ["valkey://h", "valkeys://h:1", "redis+sentinel://a,b/shop"])
def test_every_address_of_a_server_is_taken(url: str) -> None:
    assert parsed(url=url).url == url


def test_options_travel_to_executors_and_are_printed_without_the_password() -> None:
    options = parsed(url="redis://:hunter2@db:6379")

    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(DeclarationError) as refused:
        parsed(url="http://:hunter2@db:6379")
    assert "hunter2" not in str(refused.value)
