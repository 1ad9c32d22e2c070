"""Codecs msgpack (one MessagePack document) and bytes (the fields themselves)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages.codecs import (
    DocumentCodec,
    MessageCodec,
    decoder_of,
    pydantic_words,
    shown,
    type_name,
)
from headwater.messages.declared import check_model
from headwater.messages.keys import RESERVED_NAMES, Pairs, is_reserved


class MsgpackCodec(DocumentCodec):
    """One field, ``data``, with a MessagePack document.

    >>> codec = MsgpackCodec(dict[str, int])
    >>> codec.encode({"id": 17})
    [(b'data', b'\\x81\\xa2id\\x11')]
    >>> codec.decode([(b"data", b"\\x81\\xa2id\\x11")])
    {'id': 17}
    """

    name = "msgpack"
    document = "MessagePack"

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._write = msgspec.msgpack.Encoder().encode
        self._decoder = decoder_of(msgspec.msgpack.Decoder, kind)

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        data = self._data(flat)
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            words = str(error).replace("`", "")
            raise DecodeError(
                f"field 'data' = {shown(data)} is not a valid {type_name(self.kind)}: {words}"
            ) from None


class PydanticMsgpackCodec(DocumentCodec):
    """Codec msgpack for a pydantic model, with its aliases as names."""

    name = "msgpack"
    document = "MessagePack"

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._round_trip = check_model(kind, text_keys=False)

    def _write(self, message: Any) -> bytes:
        from pydantic_core import to_jsonable_python

        values = message.model_dump(by_alias=True, round_trip=self._round_trip)
        return msgspec.msgpack.encode(values, enc_hook=to_jsonable_python)

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        from pydantic import ValidationError

        data = self._data(flat)
        try:
            # strict=False: MessagePack has fewer types than Python, so strict models would refuse a UUID
            return self.kind.model_validate(msgspec.msgpack.decode(data), strict=False)
        except ValidationError as error:
            raise DecodeError(pydantic_words(error)) from None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DecodeError(
                f"field 'data' = {shown(data)} is not a MessagePack document "
                f"({type_name(self.kind)} expected): {error}"
            ) from None


class BytesCodec(MessageCodec):
    """Codec bytes: the message is the fields themselves, as a dict or a list of pairs, without reserved ones
    (``hw.…``, ``traceparent``, ``tracestate``). A dict has the last value of a repeated field.

    >>> BytesCodec(dict[bytes, bytes]).decode([(b"a", b"1"), (b"b", b"2")])
    {b'a': b'1', b'b': b'2'}
    >>> BytesCodec(list[tuple[bytes, bytes]]).encode([(b"a", b"1"), (b"a", b"2")])
    [(b'a', b'1'), (b'a', b'2')]
    """

    name = "bytes"

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._make = _container(kind)

    def encode(self, message: Any) -> Pairs:
        try:
            found = message.items() if isinstance(message, Mapping) else message
            pairs = [(name, value) for name, value in found]
        except (TypeError, ValueError) as error:
            raise EncodeError(
                f"{shown(message)} is neither a mapping nor a list of pairs: {error}"
            ) from error
        if not pairs:
            raise EncodeError("a message without fields cannot be added: an entry needs one")
        for part in (part for pair in pairs for part in pair):
            if not isinstance(part, bytes):
                raise EncodeError(
                    f"{shown(part)} is a {type_name(type(part))}: codec bytes takes bytes only"
                )
        for name, _value in pairs:
            if is_reserved(name):
                raise EncodeError(f"field {shown(name)}: {RESERVED_NAMES}; use another name")
        if self._make is dict and len(dict(pairs)) < len(pairs):
            raise EncodeError(
                f"{shown(message)} repeats a name, which {type_name(self.kind)} would lose: declare "
                "list[tuple[bytes, bytes]]"
            )
        return pairs

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        pairs = zip(flat[::2], flat[1::2], strict=False)
        return self._make([pair for pair in pairs if not is_reserved(pair[0])])


def _container(kind: Any) -> Callable[[Pairs], Any]:
    """Return the function that makes a message from pairs."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is dict or (origin is dict and arguments == (bytes, bytes)):
        return dict
    if kind is list or (origin is list and arguments == (tuple[bytes, bytes],)):
        return list
    raise DeclarationError(
        f"codec='bytes' gives the fields as they are, not a {type_name(kind)}: declare "
        "dict[bytes, bytes], or list[tuple[bytes, bytes]] where names may be repeated"
    )
