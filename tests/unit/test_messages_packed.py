"""Codecs msgpack, bytes and faststream: what they write, read and refuse."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from faststream.redis.parser import BinaryMessageFormatV1
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages import codec_for


class Line(msgspec.Struct):
    price: float


class Order(msgspec.Struct):
    id: int
    at: datetime
    lines: list[Line] = []
    blob: bytes = b""


class Model(pydantic.BaseModel):
    id: int
    at: datetime
    site: pydantic.HttpUrl | None = None


class Typed(TypedDict):
    id: int


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

CODECS = ("json", "msgpack", "faststream", "faststream-json")

MESSAGES: list[tuple[Any, Any]] = [
    (Order, Order(17, NOW, [Line(2.5)], b"\xff\x00")),
    (Model, Model(id=17, at=NOW, site=pydantic.HttpUrl("https://example.org/"))),
    (Typed, {"id": 17}),
    (list[int], [1, 2]),
    (int, 17),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "message"), MESSAGES, ids=lambda one: str(one)[:20])
def test_a_codec_reads_what_it_writes(codec: str, kind: Any, message: Any) -> None:
    found = codec_for(kind, codec)
    assert found.decode(found.encode(message)) == message


@pytest.mark.parametrize(
    ("codec", "field", "value"),
    [
        ("msgpack", b"data", msgspec.msgpack.encode({"at": "2026-01-02T03:04:05Z"})),
        ("msgpack", b"data", msgspec.msgpack.encode({"id": "x", "at": "2026-01-02T03:04:05Z"})),
        ("msgpack", b"data", b"\xc1"),
        ("msgpack", b"data", b""),
        ("faststream", b"__data__", b'{"at": "2026-01-02T03:04:05Z"}'),
        ("faststream", b"__data__", b"\x89BIN\r\n\x1a\n\x00\x01"),
        ("faststream", b"__data__", b""),
        ("faststream", b"data", b"{}"),
        ("msgpack", b"other", b"{}"),
    ],
)
@pytest.mark.parametrize("kind", [Order, Model])
def test_an_invalid_message_is_a_decode_error(
    kind: Any, codec: str, field: bytes, value: bytes
) -> None:
    with pytest.raises(DecodeError, match=r"field '(data|__data__|id|at)'"):
        codec_for(kind, codec).decode([(field, value)])


@given(st.binary(max_size=60), st.sampled_from(CODECS), st.sampled_from([Order, Model, int, str]))
def test_any_bytes_are_a_message_or_a_decode_error(data: bytes, codec: str, kind: Any) -> None:
    field = b"__data__" if codec.startswith("faststream") else b"data"
    try:
        codec_for(kind, codec).decode([(field, data)])
    except DecodeError:
        pass


# --- bytes ----------------------------------------------------------------------------------------


def test_codec_bytes_does_not_change_the_fields() -> None:
    pairs = [(b"a", b"1"), (b"\xff", b"\x00"), (b"a", b"2")]
    assert codec_for(list[tuple[bytes, bytes]], "bytes").decode(pairs) == pairs
    assert codec_for(list[tuple[bytes, bytes]], "bytes").encode(pairs) == pairs
    assert codec_for(dict[bytes, bytes], "bytes").decode(pairs) == {b"a": b"2", b"\xff": b"\x00"}
    assert codec_for(dict[bytes, bytes], "bytes").encode({b"a": b"1"}) == [(b"a", b"1")]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({}, "needs one"),
        ({"a": b"1"}, "'a' is a str: codec bytes takes bytes only"),
        ({b"a": 1}, "1 is a int"),
        (17, "neither a mapping nor a list of pairs"),
        ([b"abc"], "neither a mapping nor a list of pairs"),
        ({b"hw.after": b"1"}, "are reserved"),
    ],
)
def test_codec_bytes_refuses_other_types(message: Any, complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        codec_for(dict[bytes, bytes], "bytes").encode(message)


@pytest.mark.parametrize("kind", [Order, dict[str, str], bytes, list[bytes]])
def test_codec_bytes_is_declared_with_pairs_or_a_dict_of_bytes(kind: Any) -> None:
    with pytest.raises(DeclarationError, match=r"dict\[bytes, bytes\]"):
        codec_for(kind, "bytes")


def test_a_type_that_a_document_cannot_represent_is_refused() -> None:
    for codec in ("msgpack", "faststream"):
        with pytest.raises(DeclarationError, match="cannot be a message type"):
            codec_for(Order | Line, codec)
    with pytest.raises(EncodeError, match="MessagePack"):
        codec_for(dict[str, int], "msgpack").encode(object())


# --- FastStream -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"), [(Typed, {"id": 17}), (str, "née"), (bytes, b"\xff\x00"), (int, 17)]
)
def test_messages_written_by_faststream_are_read(kind: Any, message: Any) -> None:
    encoded = asyncio.run(
        BinaryMessageFormatV1.encode(
            message=message, reply_to=None, headers={"kind": "order"}, correlation_id="1"
        )
    )
    assert codec_for(kind, "faststream").decode([(b"__data__", encoded)]) == message


@pytest.mark.parametrize("codec", ["faststream", "faststream-json"])
@pytest.mark.parametrize(
    ("message", "body", "content_type"),
    [
        ({"id": 17}, b'{"id":17}', "application/json"),
        ("née", "née".encode(), "text/plain"),
        (b"raw", b"raw", None),
    ],
)
def test_faststream_reads_what_is_written(
    codec: str, message: Any, body: bytes, content_type: str | None
) -> None:
    ((_field, value),) = codec_for(type(message), codec).encode(message)
    found, headers = BinaryMessageFormatV1.parse(value)
    assert (found, headers.get("content-type")) == (body, content_type)


def test_the_json_envelope_accepts_only_text() -> None:
    with pytest.raises(EncodeError, match="use codec='faststream'"):
        codec_for(bytes, "faststream-json").encode(b"\xff")
