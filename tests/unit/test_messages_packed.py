"""Codecs msgpack, bytes and faststream: what they write, read and refuse."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest
from faststream.redis.parser import BinaryMessageFormatV1
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages import codec_for
from headwater.messages.faststream import binary_envelope


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
        ({b"traceparent": b"1"}, "are reserved"),
        ({b"tracestate": b"1"}, "are reserved"),
        ([(b"a", b"1"), (b"a", b"2")], "repeats a name"),
    ],
)
def test_codec_bytes_refuses_other_types(message: Any, complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        codec_for(dict[bytes, bytes], "bytes").encode(message)


@pytest.mark.parametrize("kind", [dict[bytes, bytes], list[tuple[bytes, bytes]]])
def test_codec_bytes_gives_only_fields_that_were_sent(kind: Any) -> None:
    # Given an entry to which Headwater and a tracer added fields
    found = codec_for(kind, "bytes")
    sent = [(b"a", b"1"), (b"hw", b""), (b"trace", b"\xff")]
    added = [
        (b"hw.expires", b"60000"),
        (b"hw.late", b"5"),
        (b"traceparent", b"x"),
        (b"tracestate", b"y"),
    ]

    # When it is read, Then the message has the fields that were sent, and can be sent again
    message = found.decode([*sent, *added])
    assert list(message.items() if isinstance(message, dict) else message) == sent
    assert found.encode(message) == sent


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
    ("kind", "message"),
    [
        (Typed, {"id": 17}),
        (str, "née"),
        (bytes, b"\xff\x00"),
        (int, 17),
        (Any, "née"),
        (Any, "17"),
        (Any, 17),
        (Any, b"\xff"),
        (Any, {"id": 17}),
        (str | None, "null"),
        (str | int, "17"),
        (str | int, 17),
        (bytes | None, b"17"),
        (list[str] | str, "[]"),
    ],
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


@pytest.mark.parametrize("codec", ["faststream", "faststream-json"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Any, "hello"),
        (Any, ""),
        (Any, "17"),
        (Any, 17),
        (Any, b"raw"),
        (str | int, "hi"),
        (str | int, "17"),
        (str | int, 17),
        (str | None, "x"),
        (str | None, None),
        (bytes | None, b""),
        (bytes | None, None),
        (dict[str, int] | str, "{}"),
        (dict[str, int] | str, {"a": 1}),
        (Annotated[str, msgspec.Meta(max_length=5)], "short"),
    ],
)
def test_the_content_type_decides_between_types(codec: str, kind: Any, message: Any) -> None:
    found = codec_for(kind, codec)
    back = found.decode(found.encode(message))
    assert (type(back), back) == (type(message), message)


def test_bytes_that_would_be_read_as_json_are_refused() -> None:
    with pytest.raises(EncodeError, match=r"b'\{\}' would be read as \{\} with codec 'faststream'"):
        codec_for(Any, "faststream").encode(b"{}")


@pytest.mark.parametrize("kind", [Order, Model, Typed])
def test_json_that_was_published_as_text_is_read(kind: Any) -> None:
    body = b'{"id":17,"at":"2026-01-02T03:04:05Z"}'
    message = codec_for(kind, "faststream").decode(
        [(b"__data__", binary_envelope(body, "text/plain"))]
    )
    assert (message["id"] if kind is Typed else message.id) == 17


@given(st.binary(max_size=40), st.sampled_from([Any, str | None, bytes | None]))
def test_any_headers_are_read_or_a_decode_error(headers: bytes, kind: Any) -> None:
    data = (
        b"\x89BIN\r\n\x1a\n\x00\x01\x00\x00\x00\x12"
        + (18 + len(headers)).to_bytes(4)
        + headers
        + b"17"
    )
    try:
        codec_for(kind, "faststream").decode([(b"__data__", data)])
    except DecodeError:
        pass


def test_the_json_envelope_accepts_only_text() -> None:
    with pytest.raises(EncodeError, match="use codec='faststream'"):
        codec_for(bytes, "faststream-json").encode(b"\xff")
