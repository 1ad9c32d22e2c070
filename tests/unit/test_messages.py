"""Codec json, names of a stream's additional keys, and dead-letter records."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from pydantic import BaseModel

from headwater.common.moments import iso_time
from headwater.errors import DecodeError, EncodeError
from headwater.messages import codec_for, decode, encode
from headwater.messages.dead import dead_letter_fields, error_text, parse_dead_letter, trace_text
from headwater.messages.keys import (
    dead_letter_stream,
    delays_key,
    group_settings_key,
    hash_tag,
    is_reserved,
    related_key,
)


class Line(msgspec.Struct):
    price: float


class Order(msgspec.Struct):
    id: int
    lines: list[Line] = []


class Model(BaseModel):
    id: int


def test_json_is_one_field_named_data() -> None:
    assert encode(Order(17), codec="json") == [(b"data", b'{"id":17,"lines":[]}')]
    assert encode(Model(id=17), codec="json") == [(b"data", b'{"id":17}')]


def test_json_is_read_laxly_and_other_fields_are_ignored() -> None:
    fields = [(b"traceparent", b"x"), (b"data", b'{"id":"17","lines":[{"price":"2.5"}],"new":1}')]
    assert decode(fields, Order, codec="json") == Order(17, [Line(2.5)])
    assert decode(fields, Model, codec="json") == Model(id=17)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"id":', "field 'data' = b'{\"id\":' is not a JSON document"),
        (b"\xff", "is not a JSON document"),
        (b'{"id":"abc"}', r"field 'id' = 'abc': Expected int, got str"),
        (b'{"id":1,"lines":[{"price":1},{"price":[]}]}', r"field 'lines\[1\].price' = \[\]"),
        (b'{"lines":[]}', "missing required field id"),
        (b"[]", r"field 'data' = \[\]: Expected object, got array"),
    ],
)
def test_the_error_for_invalid_json_names_field_and_value(data: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        decode([(b"data", data)], Order, codec="json")


def test_the_error_for_an_entry_without_data_lists_its_fields() -> None:
    with pytest.raises(DecodeError, match=r"field 'data' is missing.*the fields 'id', 'x'"):
        decode([(b"id", b"1"), (b"x", b"")], Order, codec="json")


def test_the_error_for_invalid_pydantic_json_names_field_and_value() -> None:
    with pytest.raises(DecodeError, match="field 'id' = 'abc'"):
        decode([(b"data", b'{"id":"abc"}')], Model, codec="json")
    with pytest.raises(DecodeError, match="field 'id' is missing"):
        decode([(b"data", b"{}")], Model, codec="json")
    with pytest.raises(DecodeError, match="is not a JSON document"):
        decode([(b"data", b"{")], Model, codec="json")


def test_a_value_that_json_cannot_represent_is_refused() -> None:
    with pytest.raises(EncodeError, match="cannot be written as JSON"):
        codec_for(dict[str, int], "json").encode({"a": object()})


def test_headwater_does_not_import_pydantic() -> None:
    program = "import sys, headwater.messages; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_additional_keys_share_the_hash_slot_of_their_stream() -> None:
    assert dead_letter_stream("orders") == "{orders}.dead"
    assert dead_letter_stream("{eu}.orders") == "{eu}.orders.dead"
    assert group_settings_key("orders", "billing") == "{orders}:hw:group:billing"
    assert delays_key("{eu}.orders", "billing") == "{eu}.orders:hw:delays:billing"
    for name in ("orders", "{eu}.orders", "a{}b"):
        tag = hash_tag(related_key(name, ":x"))
        assert tag == (hash_tag(name) or name) or name == "a{}b"


def test_reserved_names() -> None:
    assert [n for n in ("hw.at", "hw", "tracestate", "trace") if is_reserved(n)] == [
        "hw.at",
        "tracestate",
    ]


def test_a_dead_letter_has_the_original_fields_and_the_error() -> None:
    try:
        raise ValueError("no such customer")
    except ValueError as error:
        words, trace = error_text(error), trace_text(error)
    original = [b"id", b"17", b"id", b"18", b"\xff", b""]
    fields = dead_letter_fields(
        original,
        stream="orders",
        group="billing",
        entry_id="5-1",
        consumer="host-1",
        deliveries=3,
        error=words,
        trace=trace,
        at_ms=1526569498055,
    )
    assert fields[:3] == [(b"id", b"17"), (b"id", b"18"), (b"\xff", b"")]

    letter = parse_dead_letter("9-0", [part for pair in fields for part in pair])

    assert letter.fields == fields[:3]
    assert letter.stream == "orders"
    assert letter.group == "billing"
    assert letter.entry_id == "5-1"
    assert letter.consumer == "host-1"
    assert letter.deliveries == 3
    assert letter.error == "ValueError: no such customer"
    assert 'raise ValueError("no such customer")' in letter.trace
    assert letter.at == "2018-05-17T15:04:58.055Z" == iso_time(1526569498055)


def test_an_incomplete_dead_letter_can_be_parsed() -> None:
    letter = parse_dead_letter("9-0", [b"x", b"1", b"hw.deliveries", b"many"])
    assert (letter.deliveries, letter.error, letter.fields) == (0, "", [(b"x", b"1")])
