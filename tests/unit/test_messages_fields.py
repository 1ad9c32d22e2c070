"""Codec fields: it reads hand-written entries, and its errors name what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import BaseModel, Field, HttpUrl

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages import codec_for, decode, encode


class Odd:
    pass


class Colour(Enum):
    RED = "red"


class Line(msgspec.Struct):
    item: str
    price: float


class Order(msgspec.Struct):
    id: int
    name: str
    total: float
    paid: bool
    placed: datetime
    day: date
    at: time
    wait: timedelta
    key: UUID
    exact: Decimal
    colour: Colour
    size: Literal["s", "m"]
    blob: bytes
    lines: list[Line]
    tags: dict[str, int]
    note: str | None = None


ORDER = Order(
    id=17,
    name="Zoë",
    total=1.5,
    paid=True,
    placed=datetime(2026, 11, 21, 8, 30, tzinfo=timezone(timedelta(hours=2))),
    day=date(2026, 11, 21),
    at=time(8, 30, 1),
    wait=timedelta(seconds=90),
    key=UUID("12345678-1234-5678-1234-567812345678"),
    exact=Decimal("0.10"),
    colour=Colour.RED,
    size="m",
    blob=b"\x00\xff",
    lines=[Line("tea", 2.5)],
    tags={"a": 1},
)

WRITTEN = [
    (b"id", b"17"),
    (b"name", "Zoë".encode()),
    (b"total", b"1.5"),
    (b"paid", b"true"),
    (b"placed", b"2026-11-21T06:30:00Z"),
    (b"day", b"2026-11-21"),
    (b"at", b"08:30:01"),
    (b"wait", b"PT90S"),
    (b"key", b"12345678-1234-5678-1234-567812345678"),
    (b"exact", b"0.10"),
    (b"colour", b"red"),
    (b"size", b"m"),
    (b"blob", b"\x00\xff"),
    (b"lines", b'[{"item":"tea","price":2.5}]'),
    (b"tags", b'{"a":1}'),
]


def test_every_type_is_written_in_its_common_form() -> None:
    assert encode(ORDER) == WRITTEN


def test_a_written_message_is_read_back() -> None:
    assert decode(WRITTEN, Order) == ORDER


def test_text_is_read_laxly_and_unknown_fields_are_ignored() -> None:
    class Point(msgspec.Struct):
        x: int
        on: bool

    fields = [(b"on", b"1"), (b"x", b"17"), (b"y", b"5"), (b"traceparent", b"00-ab-cd-01")]
    assert decode(fields, Point) == Point(x=17, on=True)


def test_none_is_an_absent_field_and_empty_is_empty() -> None:
    class Note(msgspec.Struct):
        title: str
        text: str | None
        more: str | None = None

    assert encode(Note("", None)) == [(b"title", b"")]
    assert decode([(b"title", b"")], Note) == Note("", None, None)
    assert decode([(b"title", b""), (b"text", b"")], Note) == Note("", "", None)
    assert decode([(b"title", b"null"), (b"text", b"null")], Note) == Note("null", "null")


def test_of_a_repeated_field_the_last_counts() -> None:
    class Point(msgspec.Struct):
        x: int

    assert decode([(b"x", b"1"), (b"x", b"2")], Point) == Point(2)


def test_a_time_without_a_zone_is_utc() -> None:
    class At(msgspec.Struct):
        at: datetime

    for text in (b"2026-11-21T08:30:00", b"2026-11-21T08:30:00Z", b"2026-11-21T10:30:00+02:00"):
        assert decode([(b"at", text)], At).at == datetime(2026, 11, 21, 8, 30, tzinfo=UTC)


def test_a_time_without_a_zone_is_not_written() -> None:
    class At(msgspec.Struct):
        at: datetime

    with pytest.raises(EncodeError, match=r"field 'at' = .*without a time zone is ambiguous"):
        encode(At(datetime(2026, 11, 21)))  # noqa: DTZ001


def test_a_time_declared_without_a_zone_has_none() -> None:
    class At(msgspec.Struct):
        at: Annotated[datetime, msgspec.Meta(tz=False)]

    moment = datetime(2026, 11, 21, 8, 30)  # noqa: DTZ001
    assert encode(At(moment)) == [(b"at", b"2026-11-21T08:30:00")]
    assert decode(encode(At(moment)), At).at == moment


class Small(msgspec.Struct):
    id: int
    lines: list[Line] = []
    at: datetime | None = None


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([(b"id", b"abc")], "field 'id' = 'abc' is not a valid int"),
        ([(b"lines", b"[]")], r"field 'id' \(int\) is missing; the entry has the fields 'lines'"),
        ([(b"id", b"\xff")], r"field 'id' = b'\\xff' is not UTF-8 text"),
        ([(b"id", b"1"), (b"lines", b"[{")], r"field 'lines' = b'\[\{' is not a JSON document"),
        ([(b"id", b"1"), (b"lines", b"[5]")], r"field 'lines' = \[5\] is not a valid list"),
        ([(b"id", b"1"), (b"at", b"soon")], "field 'at' = 'soon' is not a valid datetime | None"),
    ],
)
def test_the_error_names_what_does_not_convert(
    fields: list[tuple[bytes, bytes]], complaint: str
) -> None:
    with pytest.raises(DecodeError, match=complaint):
        decode(fields, Small)


def test_a_long_value_is_cut_at_100_characters() -> None:
    with pytest.raises(DecodeError) as raised:
        decode([(b"id", b"x" * 5000)], Small)
    assert "x" * 99 in str(raised.value)
    assert "x" * 101 not in str(raised.value)


@dataclass
class Parcel:
    id: int
    weight: float = 1.0


class Letter(TypedDict):
    id: int
    to: NotRequired[str]


class Model(BaseModel):
    id: int = Field(gt=0)
    link: HttpUrl | None = None
    lines: list[int] = []
    name: str = Field(default="", alias="fullName")


def test_dataclasses_typed_dicts_and_pydantic_models_are_messages() -> None:
    assert encode(Parcel(1)) == [(b"id", b"1"), (b"weight", b"1.0")]
    assert decode([(b"id", b"1")], Parcel) == Parcel(1)

    letters = codec_for(Letter)
    assert letters.encode({"id": 1}) == [(b"id", b"1")]
    assert letters.decode([(b"id", b"1"), (b"to", b"x")]) == {"id": 1, "to": "x"}

    model = Model(id=1, link=HttpUrl("https://example.org/"), lines=[1], fullName="Zoë")
    written = [
        (b"id", b"1"),
        (b"link", b"https://example.org/"),
        (b"lines", b"[1]"),
        (b"fullName", "Zoë".encode()),
    ]
    assert encode(model) == written
    assert decode(written, Model) == model


def test_the_error_of_a_pydantic_model_names_field_and_value() -> None:
    with pytest.raises(DecodeError, match="field 'id' = '0': Input should be greater than 0"):
        decode([(b"id", b"0")], Model)
    with pytest.raises(DecodeError, match="field 'id' is missing; the entry has the fields 'x'"):
        decode([(b"x", b"0")], Model)


def test_a_tagged_struct_carries_its_tag() -> None:
    class Paid(msgspec.Struct, tag="paid"):
        id: int

    assert encode(Paid(1)) == [(b"type", b"paid"), (b"id", b"1")]
    assert decode([(b"id", b"1")], Paid) == Paid(1)
    with pytest.raises(DecodeError, match="Invalid value 'sent'"):
        decode([(b"type", b"sent"), (b"id", b"1")], Paid)


def test_renamed_fields_go_by_their_new_name() -> None:
    class Point(msgspec.Struct, rename="camel"):
        on_top: int

    assert encode(Point(1)) == [(b"onTop", b"1")]
    assert decode([(b"onTop", b"1")], Point) == Point(1)


def test_types_that_a_field_cannot_represent_are_refused_at_declaration() -> None:
    class Either(msgspec.Struct):
        value: str | list[int]

    class Defaulted(msgspec.Struct):
        value: int | None = 5

    class Reserved(msgspec.Struct):
        id: int
        traceparent: str = ""

    class HasOdd(msgspec.Struct):
        odd: Odd

    for kind, words in [
        (Either, "cannot be read back"),
        (Defaulted, "may be None but has another default"),
        (Reserved, "'traceparent' is reserved"),
        (HasOdd, "cannot be written as a field"),
        (int, "has no attributes that could be fields"),
    ]:
        with pytest.raises(DeclarationError, match=words):
            codec_for(kind)
    with pytest.raises(DeclarationError, match="unknown codec 'xml': choose one of fields, json"):
        codec_for(Small, "xml")


def test_a_message_of_another_type_is_not_written() -> None:
    with pytest.raises(EncodeError, match="is not a valid Small"):
        codec_for(Small).encode(object())


def test_an_entry_needs_a_field() -> None:
    class Empty(msgspec.Struct):
        x: int | None = None

    with pytest.raises(EncodeError, match="has no field that is not None"):
        encode(Empty())


class Wide(msgspec.Struct):
    number: int
    real: float
    flag: bool
    words: str
    raw: bytes
    nested: dict[str, list[str | None]]
    when: datetime
    maybe: int | None = None


@given(
    some.builds(
        Wide,
        number=some.integers(),
        real=some.floats(allow_nan=False),
        flag=some.booleans(),
        words=some.text(),
        raw=some.binary(),
        nested=some.dictionaries(some.text(), some.lists(some.none() | some.text())),
        when=some.datetimes(
            min_value=datetime(1000, 1, 2),  # noqa: DTZ001
            max_value=datetime(9999, 12, 30),  # noqa: DTZ001
            timezones=some.just(UTC),
        ),
        maybe=some.none() | some.integers(),
    )
)
def test_any_message_is_read_back(message: Any) -> None:
    assert decode(encode(message), Wide) == message
