"""Codecs faststream and faststream-json: one field, ``__data__``, with headers and body.

FastStream has two formats. Since version 0.6 it writes a binary envelope (numbers are big-endian):

    89 42 49 4E 0D 0A 1A 0A | version u16 = 1 | headers at u32 | body at u32
    headers:  count u16, then for each  length u16, name, length u16, value
    body:     to the end

Before 0.6 it wrote a JSON document, ``{"data": "<the body>", "headers": {…}}``. Any other value is a
body without an envelope, which producers without FastStream may write. The header ``content-type`` gives the
type of the body: ``application/json``, or ``text/plain`` for a str; bytes have no such header. A body without
content type is read as JSON, or as bytes if it is not JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from headwater.errors import DecodeError, EncodeError
from headwater.messages.codecs import (
    DATA_FIELD,
    JSONCodec,
    MessageCodec,
    PydanticJSONCodec,
    is_pydantic,
    names,
    shown,
)
from headwater.messages.keys import Pairs

FASTSTREAM_FIELD: Final = b"__data__"

_MAGIC: Final = b"\x89BIN\r\n\x1a\n"
_HEADER: Final = struct.Struct(">8sHII")


class _Envelope(msgspec.Struct):
    data: str
    headers: dict[str, Any] = {}


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def faststream_body(data: bytes) -> bytes:
    """Return the body in a value of ``__data__``. Raises `DecodeError` for an incomplete binary envelope.

    >>> faststream_body(b'{"data": "{\\\\"id\\\\": 17}", "headers": {}}')
    b'{"id": 17}'
    >>> faststream_body(b'{"id": 17}')
    b'{"id": 17}'
    """
    if data.startswith(_MAGIC):
        return data[_binary_offsets(data)[1] :]
    try:
        return _ENVELOPE.decode(data).data.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return data


def _content_type(data: bytes) -> Any:
    """Return the header ``content-type`` in a value of ``__data__``, or ``""`` if it has none."""
    if not data.startswith(_MAGIC):
        try:
            return _ENVELOPE.decode(data).headers.get("content-type", "")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ""
    at, end = _binary_offsets(data)
    words, at = [], at + 2  # the number of headers
    while at < end:
        length = int.from_bytes(data[at : at + 2], "big")
        words.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    headers = dict(zip(words[::2], words[1::2], strict=False))
    return headers.get(b"content-type", b"").decode("utf-8", "replace")


def _binary_offsets(data: bytes) -> tuple[int, int]:
    """Return where the headers and the body begin. Raises `DecodeError` for invalid offsets."""
    if len(data) < _HEADER.size:
        raise DecodeError("field '__data__' is cut off within its header")
    _magic, version, headers_at, body_at = _HEADER.unpack_from(data)
    if version != 1:
        raise DecodeError(f"field '__data__' has FastStream's binary format {version}, not 1")
    if not _HEADER.size <= headers_at < body_at <= len(data):
        raise DecodeError(
            f"field '__data__' has invalid offsets: headers at {headers_at}, body at {body_at}, of "
            f"{len(data)} bytes"
        )
    return headers_at, body_at


def binary_envelope(body: bytes, content_type: str) -> bytes:
    """Return ``body`` in the envelope that FastStream has written since 0.6."""
    headers = struct.pack(">H", 1 if content_type else 0)
    for word in ("content-type", content_type) if content_type else ():
        headers += struct.pack(">H", len(word)) + word.encode()
    at = _HEADER.size
    return _HEADER.pack(_MAGIC, 1, at, at + len(headers)) + headers + body


def json_envelope(body: bytes, content_type: str) -> bytes:
    """Return ``body`` in the envelope that FastStream wrote before 0.6. Raises `EncodeError` if it is
    not UTF-8."""
    headers = {"content-type": content_type} if content_type else {}
    try:
        return msgspec.json.encode({"data": body.decode(), "headers": headers})
    except UnicodeDecodeError as error:
        raise EncodeError(
            f"{shown(body)} is not UTF-8 text, which FastStream's JSON envelope needs: use "
            "codec='faststream'"
        ) from error


class FastStreamCodec(MessageCodec):
    """FastStream's field ``__data__``: written in the format of 0.6, read in either format.

    The body is JSON, written by msgspec or by the pydantic model; the text of a str; or bytes, unchanged. If the
    declared type may be a str or bytes among others, the content type decides, as in FastStream.

    >>> codec = FastStreamCodec(dict[str, int])
    >>> codec.decode(codec.encode({"id": 17}))
    {'id': 17}
    """

    name = "faststream"
    writes_json = True
    envelope = staticmethod(binary_envelope)

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._json = PydanticJSONCodec(kind) if is_pydantic(kind) else JSONCodec(kind)

    def encode(self, message: Any) -> Pairs:
        if isinstance(message, bytes):
            value = self.envelope(message, "")
        elif isinstance(message, str):
            value = self.envelope(_encoded(message), "text/plain")
        else:
            value = self.envelope(self._json.document_of(message), "application/json")
        return self._read_back(message, [(FASTSTREAM_FIELD, value)])

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        data = _data(flat)
        body = faststream_body(data)
        if self.kind is bytes:
            return body
        if self.kind is str:
            return _text(body)
        content_type = _content_type(data)
        if content_type == "text/plain" and (found := self._converted(_text(body))) is not UNSET:
            return found
        try:
            return self._json.decode_flat([DATA_FIELD, body])
        except DecodeError as error:
            if not content_type and (found := self._converted(body)) is not UNSET:
                return found
            raise DecodeError(f"in the body that field '__data__' holds: {error}") from None

    def _converted(self, body: str | bytes) -> Any:
        """Return a body that is not JSON as the declared type; UNSET if this type has no such values."""
        if isinstance(self._json, PydanticJSONCodec):
            return UNSET
        try:
            return msgspec.convert(body, self.kind, strict=False)
        except (msgspec.ValidationError, TypeError, ValueError):
            return UNSET


class FastStreamJSONCodec(FastStreamCodec):
    """A `FastStreamCodec` that writes the format that FastStream wrote before 0.6."""

    name = "faststream-json"
    envelope = staticmethod(json_envelope)


def _data(flat: Sequence[bytes]) -> bytes:
    """Return the value of field ``__data__``, or its last value if the field is repeated."""
    for index in range(len(flat) - 2, -1, -2):
        if flat[index] == FASTSTREAM_FIELD:
            return flat[index + 1]
    raise DecodeError(
        f"field '__data__', to which FastStream writes, is missing; the entry has the fields {names(flat)}"
    )


def _encoded(message: str) -> bytes:
    try:
        return message.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"{shown(message)} cannot be written as UTF-8: {error}") from error


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"field '__data__' has {shown(body)}, not UTF-8 text: {error}") from None
