"""Options are checked before any connection is made, and never show a password."""

from __future__ import annotations

import pickle

import pytest

from headwater.common.model import StreamID
from headwater.errors import DeclarationError
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
def test_streams_are_named_singly_or_as_a_list(text: str, streams: tuple[str, ...]) -> None:
    options = parsed(stream=text)

    assert options.streams == streams
    assert options.pattern is None


@pytest.mark.parametrize("text", ["orders.*", "order?", "[ab]rders"])
def test_a_glob_is_a_pattern(text: str) -> None:
    assert str(parsed(stream=text).pattern) == text


def test_a_pattern_with_a_comma_is_refused() -> None:
    with pytest.raises(DeclarationError, match="is a pattern with a comma"):
        parsed(stream="orders.*,payments")


def test_a_starting_id_is_for_all_streams_or_for_each() -> None:
    assert parsed(startingId="latest").start_of("orders") == "latest"
    assert parsed(startingId="5").start_of("orders") == StreamID(5, 0)
    each = parsed(stream="a,b", startingId='{"a": "7-1"}')
    assert each.start_of("a") == StreamID(7, 1)
    assert each.start_of("b") == "earliest"


def test_the_case_of_names_and_words_is_ignored() -> None:
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
        ({"endingTimestamp": "noon"}, "is not a time: ISO 8601"),
        ({"startingTimestamp": "1969-12-31"}, "is not after 1970"),
        ({"startingTimestamp": '{"other": "5"}'}, "names other"),
        ({"maxBytesPerTrigger": "4 MB"}, "not a whole number of at least 1"),
        ({"columns": "n*"}, "is a pattern"),
        ({"minIdleTime": "soon", "group": "g"}, "not a duration like 500ms"),
        ({"minIdleTime": "5s"}, "no group is named"),
        ({"endingId": "5", "group": "g"}, "has no effect with group"),
        ({"ignoreDeletes": "true", "group": "g"}, "has no effect with group"),
        ({"deadLetterStream": "d", "group": "g"}, "has no effect without maxDeliveries"),
        (
            {"deadLetterStream": "orders", "group": "g", "maxDeliveries": "2"},
            "this query reads 'orders' itself",
        ),
        ({"samplingEntries": "50"}, "has no effect without inferSchema=true"),
        ({"samplingEntries": "50", "inferSchema": "false"}, "has no effect without inferSchema"),
        ({"timestampFormat": "sec"}, "'sec' is neither iso, s, ms, us, ns nor a pattern"),
        ({"timestampFormat": "HH:mm"}, "it has no year"),
        ({"timestampFormat": "yyyy-MM-dd'T"}, "an apostrophe is missing"),
        ({"timestampFormat": "yyyy yyyy"}, "it has a part twice"),
        ({"timestampFormat": "yyyy-MM-dd hh:mm"}, "h and a belong together"),
        ({"timestampFormat": '{"at": 3}'}, "is not a JSON object of column to format"),
        ({"timestampFormat": "{}"}, "is not a JSON object of column to format"),
        ({"timestampFormat": "ms", "inferSchema": "true"}, "has no effect with inferSchema"),
        ({"path": "x"}, "The options are url, stream"),
        ({"startingId": "yesterday"}, "none of earliest, latest"),
        ({"startingId": "99999999999999999999"}, "fit in 64 bits"),
        ({"startingId": '{"other": "5-0"}'}, "names other"),
        ({"startingId": '{"orders": [5]}'}, "not a JSON object"),
        ({"maxEntriesPerTrigger": "0"}, "not a whole number of at least 1"),
        ({"minPartitions": "many"}, "not a whole number of at least 1"),
        ({"failOnDataLoss": "no"}, "neither true nor false"),
        ({"codec": "jsn"}, "Did you mean 'json'"),
        ({"mode": "strict"}, "not one of permissive, failfast, dropmalformed"),
        ({"stream": " "}, '"stream" is missing'),
        ({"stream": "a,,b"}, "has an empty name"),
        ({"url": ""}, '"url" is missing'),
        ({"url": "localhost:6379"}, "does not begin with one of"),
    ],
)
def test_a_wrong_option_is_refused_with_the_remedy(given: dict[str, str], said: str) -> None:
    with pytest.raises(DeclarationError, match=said.replace("(", r"\(")):
        parsed(**given)


@pytest.mark.parametrize("url", ["valkey://h", "valkeys://h:1", "redis+sentinel://a,b/shop"])
def test_every_address_of_a_server_is_accepted(url: str) -> None:
    assert parsed(url=url).url == url


def test_options_can_be_pickled_and_printed_without_the_password() -> None:
    options = parsed(url="redis://:hunter2@db:6379")

    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(DeclarationError) as refused:
        parsed(url="http://:hunter2@db:6379")
    assert "hunter2" not in str(refused.value)
