"""Types that a codec cannot read back are refused when it is made; unusual types that it can are read back."""

from __future__ import annotations

from datetime import date
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages import codec_for
from tests.unit.test_messages_read_back import (
    CODECS,
    DOCUMENTS,
    Level,
    Line,
    Number,
    Part,
    model,
    struct,
)


class Both(Enum):
    TEXT = "1"


class Unsupported:
    pass


class Excluded(pydantic.BaseModel):
    id: int
    note: int = pydantic.Field(exclude=True)


class ExcludedWithDefault(pydantic.BaseModel):
    id: int
    note: int = pydantic.Field(5, exclude=True)


class OneWay(pydantic.BaseModel):
    id: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Nested(pydantic.BaseModel):
    rows: list[OneWay | None]


class Root(pydantic.RootModel[list[int]]):
    pass


@pytest.mark.parametrize(
    ("codec", "declared", "words"),
    [
        ("fields", struct(int, array_like=True), "array_like"),
        ("fields", struct(Any), r"Message\.x.*Any.*codec='json'"),
        ("fields", model(Any), r"Message\.x.*Any.*codec='json'"),
        ("fields", struct(Any | None), r"Message\.x.*Any"),
        ("fields", struct(str | int), r"Message\.x.*str \| int"),
        ("fields", model(str | int), r"Message\.x.*str \| int"),
        ("fields", model(pydantic.AnyUrl | str), r"Message\.x"),
        ("fields", struct(Literal["1", 1]), r"Message\.x.*'1'"),
        ("json", struct(Literal["1", 1]), r"Message\.x.*'1'"),
        ("msgpack", struct(list[Literal["1", 1]]), r"Message\.x.*'1'"),
        ("faststream", struct(Literal["1", 1] | None), r"Message\.x.*'1'"),
        ("json", struct(Literal["null"] | None), r"Message\.x.*'null'"),
        ("json", struct(Both | int), r"Message\.x.*'1'"),
        ("fields", struct(list[Literal["1", 1]]), r"Message\.x.*'1'"),
        ("fields", model(Literal["1", 1]), r"Message\.x.*1"),
        ("fields", model(Number), r"Message\.x.*ONE"),
        ("fields", model(Literal[1, 2]), r"Message\.x.*1"),
        ("json", struct(Unsupported), r"Message\.x.*Unsupported"),
        ("json", struct(list[Part]), r"Message\.x.*Part"),
        ("fields", struct(list[Unsupported]), r"Message\.x.*Unsupported"),
        ("fields", struct(dict[tuple[int, int], int]), r"Message\.x: a tuple"),
        ("json", struct(dict[bool, int]), r"Message\.x: a bool"),
        ("json", model(dict[tuple[int, int], int]), r"Message\.x.*tuple"),
        ("fields", model(list[dict[tuple[int, int], int]]), r"Message\.x.*tuple"),
        ("fields", struct(int, tag="t", tag_field="traceparent"), "'traceparent' is reserved"),
        ("fields", Root, "Root.*codec='json'"),
        *((codec, Excluded, r"Excluded\.note.*exclude=True") for codec in CODECS),
        *((codec, ExcludedWithDefault, r"note.*exclude=True") for codec in CODECS),
        *((codec, OneWay, r"OneWay\.id.*'out'.*'in'") for codec in CODECS),
        *((codec, Nested, r"OneWay\.id.*'out'.*'in'") for codec in CODECS),
    ],
)
def test_a_type_that_cannot_be_read_back_is_refused(codec: str, declared: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        codec_for(declared, codec)


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_by_name=True, validate_by_alias=True)
    id: int = pydantic.Field(validation_alias="in")
    note: str = pydantic.Field(
        validation_alias=pydantic.AliasChoices("n", "words"), serialization_alias="words"
    )
    plain: int = pydantic.Field(1, alias="p")


class Translated(pydantic.BaseModel):
    id: int = pydantic.Field(validation_alias="in", serialization_alias="out")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _accept(cls, values: Any) -> Any:
        return {"in": values.get("in", values.get("out"))}


class Computed(pydantic.BaseModel):
    id: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.id


class Forbidding(Computed):
    model_config = pydantic.ConfigDict(extra="forbid")


class Outer(pydantic.BaseModel):
    inner: Forbidding
    words: pydantic.Json[list[int]] | None = None
    rows: list[pydantic.Json[int]] = []


class Allowing(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int


STRICT = {"strict": True}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "message",
    [
        Aliased.model_validate({"in": 1, "words": "x", "p": 2}),
        Translated.model_validate({"in": 1}),
        Forbidding(id=1),
        Computed(id=1),
        Outer(inner=Forbidding(id=1), words="[1,2]", rows=["3"]),  # type: ignore[arg-type,list-item]
        Outer(inner=Forbidding(id=1)),
        model(pydantic.Json[list[int]])(x="[1,2]"),
        model(int, **STRICT)(x=5),
        model(pydantic.StrictInt)(x=5),
        model(list[UUID], **STRICT)(x=[UUID(int=1)]),
        model(tuple[date, ...], **STRICT)(x=(date(2026, 1, 2),)),
        model(Level)(x=Level.LOW),
        model(IPv4Address | IPv6Address)(x=IPv6Address(1)),
        model(Part | Computed)(x=Computed(id=1)),
        model(float | None)(x=2.5),
        struct(int, tag=7)(x=5),
        struct(int, tag=True)(x=5),
        struct(Line | None)(x=Line("tea")),
    ],
    ids=lambda one: f"{type(one).__name__}-{one}"[:40],
)
def test_an_unusual_type_is_read_back(codec: str, message: Any) -> None:
    found = codec_for(type(message), codec)
    assert found.decode(found.encode(message)) == message


def test_a_strict_model_converts_text_except_with_codec_json() -> None:
    declared = model(int, **STRICT)
    assert codec_for(declared).decode([(b"x", b"5")]) == declared(x=5)
    packed = msgspec.msgpack.encode({"x": "5"})
    assert codec_for(declared, "msgpack").decode([(b"data", packed)]) == declared(x=5)
    with pytest.raises(DecodeError, match="field 'x' = '5'"):
        codec_for(declared, "json").decode([(b"data", b'{"x":"5"}')])


def test_computed_fields_are_written_unless_the_model_forbids_to_read_them() -> None:
    assert codec_for(Computed, "json").encode(Computed(id=1)) == [(b"data", b'{"id":1,"double":2}')]
    assert codec_for(Forbidding, "json").encode(Forbidding(id=1)) == [(b"data", b'{"id":1}')]


def test_text_in_json_is_written_unquoted_by_codec_fields() -> None:
    declared = model(pydantic.Json[list[int]])
    assert codec_for(declared).encode(declared(x="[1,2]")) == [(b"x", b"[1,2]")]


def test_a_model_with_further_attributes_keeps_them_or_is_refused() -> None:
    message = Allowing.model_validate({"id": 1, "more": 2})
    for codec in DOCUMENTS:
        found = codec_for(Allowing, codec)
        assert found.decode(found.encode(message)) == message
    with pytest.raises(EncodeError, match="field 'more' = 2 would be missing"):
        codec_for(Allowing).encode(message)


def test_a_tag_of_another_type_is_refused_when_read() -> None:
    with pytest.raises(DecodeError, match="tag"):
        codec_for(struct(int, tag=7)).decode([(b"type", b"8"), (b"x", b"1")])
