"""FastStream's entries: one field ``__data__`` that holds the message's body behind its headers.

Two formats are about. Since 0.6, binary (numbers big-endian):

    89 42 49 4E 0D 0A 1A 0A | version u16 = 1 | headers at u32 | body at u32
    headers:  count u16, then for each  length u16, name, length u16, value
    body:     to the end

and before that a JSON document, ``{"data": "<the body>", "headers": {…}}``. What is neither is a body
without an envelope, as a producer that does not know FastStream writes it. The header ``content-type``
says what the body is: ``application/json``, ``text/plain`` for a str, none for bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headwater.errors import DecodeError, EncodeError
from headwater.messages.codecs import (
    DATA_FIELD,
    JSONCodec,
    MessageCodec,
    Pairs,
    PydanticJSONCodec,
    is_pydantic,
    names,
    shown,
)

FASTSTREAM_FIELD: Final = b"__data__"

_MAGIC: Final = b"\x89BIN\r\n\x1a\n"
_HEADER: Final = struct.Struct(">8sHII")


class _Envelope(msgspec.Struct):
    data: str
    headers: dict[str, Any] = {}


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def faststream_body(data: bytes) -> bytes:
    """The body in a value of ``__data__``; `DecodeError` for a binary one that is cut off.

    >>> faststream_body(b'{"data": "{\\\\"id\\\\": 17}", "headers": {}}')
    b'{"id": 17}'
    >>> faststream_body(b'{"id": 17}')
    b'{"id": 17}'
    """
    if data.startswith(_MAGIC):
        return _binary_body(data)
    try:
        return _ENVELOPE.decode(data).data.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return data


def _binary_body(data: bytes) -> bytes:
    if len(data) < _HEADER.size:
        raise DecodeError("field '__data__' is cut off within its header")
    _magic, version, headers_at, body_at = _HEADER.unpack_from(data)
    if version != 1:
        raise DecodeError(f"field '__data__' has FastStream's binary format {version}, not 1")
    if not _HEADER.size <= headers_at < body_at <= len(data):
        raise DecodeError(
            f"field '__data__' says that its body begins at {body_at}, and has {len(data)} bytes"
        )
    return data[body_at:]


def binary_envelope(body: bytes, content_type: str) -> bytes:
    """A body as FastStream has written it since 0.6."""
    headers = struct.pack(">H", 1 if content_type else 0)
    for word in ("content-type", content_type) if content_type else ():
        headers += struct.pack(">H", len(word)) + word.encode()
    at = _HEADER.size
    return _HEADER.pack(_MAGIC, 1, at, at + len(headers)) + headers + body


def json_envelope(body: bytes, content_type: str) -> bytes:
    """A body as FastStream wrote it before 0.6. `EncodeError` for one that is no text."""
    headers = {"content-type": content_type} if content_type else {}
    try:
        return msgspec.json.encode({"data": body.decode(), "headers": headers})
    except UnicodeDecodeError as error:
        raise EncodeError(
            f"{shown(body)} is no UTF-8 text, which FastStream's JSON envelope needs: use "
            "codec='faststream'"
        ) from error


class FastStreamCodec(MessageCodec):
    """FastStream's field ``__data__``: written as it is since 0.6, read in either format.

    Messages are JSON in it, by msgspec or the pydantic model itself; a str is its text, and bytes are
    as they are.

    >>> codec = FastStreamCodec(dict[str, int])
    >>> codec.decode(codec.encode({"id": 17}))
    {'id': 17}
    """

    name = "faststream"
    envelope = staticmethod(binary_envelope)

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._json = PydanticJSONCodec(kind) if is_pydantic(kind) else JSONCodec(kind)

    def encode(self, message: Any) -> Pairs:
        if isinstance(message, bytes):
            value = self.envelope(message, "")
        elif isinstance(message, str):
            value = self.envelope(message.encode(), "text/plain")
        else:
            ((_name, body),) = self._json.encode(message)
            value = self.envelope(body, "application/json")
        return [(FASTSTREAM_FIELD, value)]

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        body = faststream_body(_data(flat))
        if self.kind is bytes:
            return body
        if self.kind is str:
            return _text(body)
        try:
            return self._json.decode_flat([DATA_FIELD, body])
        except DecodeError as error:
            raise DecodeError(f"in the body that field '__data__' holds: {error}") from None


class FastStreamJSONCodec(FastStreamCodec):
    """As `FastStreamCodec`, but written as FastStream did before 0.6."""

    name = "faststream-json"
    envelope = staticmethod(json_envelope)


def _data(flat: Sequence[bytes]) -> bytes:
    """The value of ``__data__``, the last one if it is repeated."""
    for index in range(len(flat) - 2, -1, -2):
        if flat[index] == FASTSTREAM_FIELD:
            return flat[index + 1]
    raise DecodeError(
        f"field '__data__' is missing, in which FastStream writes; the entry has the fields {names(flat)}"
    )


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"field '__data__' holds {shown(body)}, no UTF-8 text: {error}") from None
