"""Codecs, which write a typed message as an entry's fields and read it back.

Producers, workers, dead letters and Spark use the same codecs, so they agree on the bytes.

>>> import msgspec
>>> class Order(msgspec.Struct):
...     id: int
...     item: str
>>> encode(Order(id=17, item="tea"))
[(b'id', b'17'), (b'item', b'tea')]
>>> decode([(b"item", b"tea"), (b"id", b"17")], Order)
Order(id=17, item='tea')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headwater.errors import DeclarationError
from headwater.messages.keys import Pairs

if TYPE_CHECKING:  # msgspec is imported when a codec is made, not for the names of keys
    from headwater.messages.codecs import MessageCodec

CODECS = ("fields", "json", "msgpack", "bytes", "faststream", "faststream-json")


def codec_for(kind: Any, codec: str = "fields") -> MessageCodec:
    """Return a new codec for messages of type ``kind``. A stream makes its codec once and keeps it.

    Raises `DeclarationError` for an unknown codec, and for a type that the codec cannot carry.
    """
    if codec not in CODECS:
        raise DeclarationError(f"unknown codec {codec!r}: choose one of {', '.join(CODECS)}")
    from headwater.messages.codecs import JSONCodec, PydanticJSONCodec, is_pydantic
    from headwater.messages.faststream import FastStreamCodec, FastStreamJSONCodec
    from headwater.messages.fields import FieldsCodec, PydanticFieldsCodec
    from headwater.messages.packed import BytesCodec, MsgpackCodec, PydanticMsgpackCodec

    of_pydantic = is_pydantic(kind)
    match codec:
        case "json":
            return PydanticJSONCodec(kind) if of_pydantic else JSONCodec(kind)
        case "msgpack":
            return PydanticMsgpackCodec(kind) if of_pydantic else MsgpackCodec(kind)
        case "bytes":
            return BytesCodec(kind)
        case "faststream":
            return FastStreamCodec(kind)
        case "faststream-json":
            return FastStreamJSONCodec(kind)
    return PydanticFieldsCodec(kind) if of_pydantic else FieldsCodec(kind)


_codec_of: Callable[[Any, str], MessageCodec] = lru_cache(maxsize=256)(codec_for)


def encode(message: Any, *, codec: str = "fields") -> Pairs:
    """Return the fields of ``message``, pairs of bytes in order, as `Stream.send` would add them.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> encode(Order(id=17)), encode(Order(id=17), codec="json")
    ([(b'id', b'17')], [(b'data', b'{"id":17}')])

    Raises `EncodeError` if a value cannot be written or would not be read back equal, and `DeclarationError` if the
    codec is unknown or cannot carry the type.
    """
    return _codec_of(type(message), codec).encode(message)


def decode(fields: Sequence[tuple[bytes, bytes]], kind: Any, *, codec: str = "fields") -> Any:
    """Return the message of type ``kind`` in ``fields``, pairs of bytes, as a handler would get it.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> decode([(b"id", b"17"), (b"note", b"ignored")], Order)
    Order(id=17)

    Raises `DecodeError`, with the field and its value if known, if the fields are not such a message, and
    `DeclarationError` as `headwater.messages.encode` does.
    """
    return _codec_of(kind, codec).decode(fields)
