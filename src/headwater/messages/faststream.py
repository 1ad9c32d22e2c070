"""FastStream's entries: one field ``__data__`` that holds the message's body behind its headers.

Two formats are about. Since 0.6, binary (numbers big-endian):

    89 42 49 4E 0D 0A 1A 0A | version u16 = 1 | headers at u32 | body at u32
    headers:  count u16, then for each  length u16, name, length u16, value
    body:     to the end

and before that a JSON document, ``{"data": "<the body>", "headers": {…}}``. What is neither is a body
without an envelope, as a producer that does not know FastStream writes it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from headwater.errors import DecodeError

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
