"""Codecs: they write a typed message as an entry's fields and read it back.

Producers, workers, dead letters and Spark use the same codecs and so agree on the bytes.

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
from headwater.messages.dead import (
    DeadLetter,
    dead_letter_fields,
    error_text,
    parse_dead_letter,
    trace_text,
)
from headwater.messages.keys import (
    EXPIRES_FIELD,
    LATE_FIELD,
    PARKED_CONSUMER,
    RESERVED,
    RESERVED_PREFIX,
    SIGN_CONSUMER,
    TRACE_FIELDS,
    Pairs,
    actions_key,
    dead_letter_stream,
    dedupe_key,
    delays_key,
    due_key,
    early_claims_key,
    expired_key,
    group_backup_key,
    group_reader_key,
    group_settings_key,
    hash_tag,
    heard_key,
    held_key,
    hung_key,
    is_reserved,
    later_key,
    limit_key,
    limited_key,
    poison_key,
    reader_key,
    related_key,
    ticks_key,
    transfers_key,
)

if TYPE_CHECKING:  # msgspec is imported for the first message, not for the names of keys
    from headwater.messages.codecs import DATA_FIELD as DATA_FIELD
    from headwater.messages.codecs import MessageCodec as MessageCodec

CODECS = ("fields", "json", "msgpack", "bytes", "faststream", "faststream-json")


def codec_for(kind: Any, codec: str = "fields") -> MessageCodec:
    """Return a new codec for messages of type ``kind``. A stream makes one and keeps it.

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


def __getattr__(name: str) -> object:
    if name not in {"DATA_FIELD", "MessageCodec"}:
        raise AttributeError(f"module 'headwater.messages' has no attribute {name!r}")
    from headwater.messages import codecs

    return getattr(codecs, name)


_codec_of: Callable[[Any, str], MessageCodec] = lru_cache(maxsize=256)(codec_for)


def encode(message: Any, *, codec: str = "fields") -> Pairs:
    """Return the fields of ``message``, pairs of bytes in order, as `Stream.send` would add them.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> encode(Order(id=17)), encode(Order(id=17), codec="json")
    ([(b'id', b'17')], [(b'data', b'{"id":17}')])

    Raises `EncodeError` if a value cannot be written, and `DeclarationError` if the codec is unknown or cannot
    carry the type.
    """
    return _codec_of(type(message), codec).encode(message)


def decode(fields: Sequence[tuple[bytes, bytes]], kind: Any, *, codec: str = "fields") -> Any:
    """Return the message of type ``kind`` in ``fields``, pairs of bytes, as a handler would get it.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> decode([(b"id", b"17"), (b"note", b"ignored")], Order)
    Order(id=17)

    Raises `DecodeError`, with field, value and type, if the fields do not hold such a message, and
    `DeclarationError` as `headwater.messages.encode` does.
    """
    return _codec_of(kind, codec).decode(fields)


__all__ = [
    "CODECS",
    "DATA_FIELD",
    "EXPIRES_FIELD",
    "LATE_FIELD",
    "PARKED_CONSUMER",
    "RESERVED",
    "RESERVED_PREFIX",
    "SIGN_CONSUMER",
    "TRACE_FIELDS",
    "DeadLetter",
    "MessageCodec",
    "Pairs",
    "actions_key",
    "codec_for",
    "dead_letter_fields",
    "dead_letter_stream",
    "decode",
    "dedupe_key",
    "delays_key",
    "due_key",
    "early_claims_key",
    "encode",
    "error_text",
    "expired_key",
    "group_backup_key",
    "group_reader_key",
    "group_settings_key",
    "hash_tag",
    "heard_key",
    "held_key",
    "hung_key",
    "is_reserved",
    "later_key",
    "limit_key",
    "limited_key",
    "parse_dead_letter",
    "poison_key",
    "reader_key",
    "related_key",
    "ticks_key",
    "trace_text",
    "transfers_key",
]
