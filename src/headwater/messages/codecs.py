"""The base class of codecs, and codec json.

Rule 1. The declaration chooses the codec. It is never guessed from the fields of an entry.
Rule 2. Text is converted to the declared type (``"17"`` becomes 17). For a field that is missing or cannot be
        converted, a `DecodeError` names the field and shows its value, if any, cut at 100 characters.
Rule 3. A codec reads back what it writes. A type whose values it could not read back equal raises
        `DeclarationError` when the codec is made. If only some values could not, `encode` decodes what it has
        written and raises `EncodeError` for such a message, so that it is never acknowledged and then lost.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import inspect

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages.declared import check_model, check_type
from headwater.messages.keys import Pairs
from headwater.messages.read_back import MISSING, Difference, difference, not_in_json, remedy

DATA_FIELD = b"data"
"""The only field that codecs json and msgpack write."""

MAX_SHOWN = 100
"""Maximum number of characters of a value in an error: enough to recognise it, too few to leak a document."""


def shown(value: object) -> str:
    """Return ``value`` as an error shows it: its repr, cut at 100 characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def names(flat: Sequence[bytes]) -> str:
    """Return the field names of an entry, for an error."""
    found = ", ".join(repr(name.decode("utf-8", "replace")) for name in flat[::2])
    return (found if len(found) <= MAX_SHOWN else found[:MAX_SHOWN] + "…") or "none"


def pydantic_base() -> Any:
    """Return pydantic's BaseModel, or None if the program has not imported pydantic and so has no
    pydantic models."""
    module = sys.modules.get("pydantic")
    return getattr(module, "BaseModel", None)


def is_pydantic(kind: object) -> bool:
    """Return whether ``kind`` is a pydantic model class."""
    base = pydantic_base()
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def type_name(kind: object) -> str:
    """Return a type's name for an error."""
    return getattr(kind, "__name__", None) or str(kind)


class MessageCodec(ABC):
    """Encodes and decodes messages of one type. A stream has one codec, which keeps no state between calls."""

    name: str
    writes_json = False
    """True if messages are written as JSON."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @abstractmethod
    def encode(self, message: Any) -> Pairs:
        """Return the entry's fields, in order. Raises `EncodeError` if the message cannot be written, and if it
        would not be read back equal, which `_read_back` finds."""

    @abstractmethod
    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        """Return the message in ``[field, value, field, value, …]``. Raises `DecodeError` if the fields
        are not a message."""

    def decode(self, pairs: Sequence[tuple[bytes, bytes]]) -> Any:
        """Return the message in the fields. Raises `DecodeError` if they are not a message."""
        return self.decode_flat([*chain.from_iterable(pairs)])

    def _read_back(self, message: Any, pairs: Pairs) -> Pairs:
        """Return ``pairs``, the fields of ``message``. Raises `EncodeError` if their reader could not decode them,
        or would get another message."""
        try:
            found = self.decode_flat(pairs[0] if len(pairs) == 1 else [*chain.from_iterable(pairs)])
        except DecodeError as error:
            changed = self._not_in_json(message)
            if changed is None:
                raise EncodeError(
                    f"{shown(message)} cannot be sent, because its reader could not decode it: {error}"
                ) from None
        else:
            changed = difference(message, found)
            if changed is None:
                return pairs
        field = f"field {changed.place!r}" if changed.place else "the message"
        back = "missing" if changed.found is MISSING else f"read as {shown(changed.found)}"
        raise EncodeError(
            f"{field} = {shown(changed.sent)} would be {back} with codec {self.name!r}. "
            f"{remedy(changed.sent)}."
        )

    def _not_in_json(self, message: Any) -> Difference | None:
        """Return the first number of ``message`` that this codec would write as JSON, which lacks it."""
        return not_in_json(message) if self.writes_json else None


def decoder_of(make: Callable[..., Any], kind: Any) -> Any:
    """Return msgspec's decoder for a type. Raises `DeclarationError` if msgspec cannot decode it, or could
    decode it as another value."""
    try:
        decoder, info = make(kind, strict=False), inspect.type_info(kind)
    except (TypeError, ValueError, NameError) as error:
        raise DeclarationError(
            f"{type_name(kind)} cannot be a message type: {error}. Use a msgspec Struct, a "
            "dataclass, a TypedDict or a pydantic model."
        ) from error
    check_type(type_name(kind), info, text_keys=make is msgspec.json.Decoder)
    return decoder


class DocumentCodec(MessageCodec):
    """Codec with one field, ``data``, that holds a document."""

    document: str
    """Name of the document's format."""
    _write: Callable[[Any], bytes]

    def encode(self, message: Any) -> Pairs:
        return self._read_back(message, [(DATA_FIELD, self.document_of(message))])

    def document_of(self, message: Any) -> bytes:
        """Return the document, which may not be readable. Raises `EncodeError` if it cannot be written."""
        try:
            return self._write(message)
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EncodeError(
                f"{shown(message)} cannot be written as {self.document}: {error}"
            ) from error

    def _data(self, flat: Sequence[bytes]) -> bytes:
        """Return the value of field ``data``, or its last value if the field is repeated."""
        if len(flat) == 2 and flat[0] == DATA_FIELD:
            return flat[1]
        for index in range(len(flat) - 2, -1, -2):
            if flat[index] == DATA_FIELD:
                return flat[index + 1]
        raise DecodeError(
            f"field 'data' is missing: codec {self.name} expects one {self.document} document there; the "
            f"entry has the fields {names(flat)}"
        )


class JSONCodec(DocumentCodec):
    """One field, ``data``, with a JSON document.

    >>> codec = JSONCodec(dict[str, int])
    >>> codec.encode({"id": 17})
    [(b'data', b'{"id":17}')]
    >>> codec.decode([(b"data", b'{"id": "17"}')])
    {'id': 17}
    """

    name = "json"
    document = "JSON"
    writes_json = True

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._write = msgspec.json.Encoder().encode
        self._decoder = decoder_of(msgspec.json.Decoder, kind)

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        data = self._data(flat)
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise DecodeError(_located(data, str(error), self.kind)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_json(data, self.kind, error) from None
        except (TypeError, ValueError) as error:
            raise DecodeError(
                f"field 'data' = {shown(data)} is not a valid {type_name(self.kind)}: {error}"
            ) from error


class PydanticJSONCodec(DocumentCodec):
    """Codec json for a pydantic model: the model's own JSON, with its aliases as names.

    Computed fields are written, too, unless a model forbids unknown attributes or has a `pydantic.Json`.
    """

    name = "json"
    document = "JSON"
    writes_json = True

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self._round_trip = check_model(kind, text_keys=True)

    def _write(self, message: Any) -> bytes:
        document: str = message.model_dump_json(by_alias=True, round_trip=self._round_trip)
        return document.encode()

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        from pydantic import ValidationError

        data = self._data(flat)
        try:
            return self.kind.model_validate_json(data)
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":
                raise not_json(data, self.kind, error.errors()[0]["msg"]) from None
            raise DecodeError(pydantic_words(error)) from None


def not_json(data: bytes, kind: object, reason: object) -> DecodeError:
    return DecodeError(
        f"field 'data' = {shown(data)} is not a JSON document ({type_name(kind)} expected): {reason}"
    )


def pydantic_words(error: Any) -> str:
    """Return the first error of a pydantic ValidationError, in the wording of Headwater's errors."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    field = f"field {place!r}" if place else "the message"
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} = {shown(first['input'])}: {first['msg']}"


_PATH_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")


def _located(data: bytes, complaint: str, kind: object) -> str:
    """Return msgspec's error text, which names a path (``$.lines[2].price``) and a type, with the value at
    that path."""
    words, _, place = complaint.partition(" - at `")
    path = place.rstrip("`").removeprefix("$")
    try:
        value = msgspec.json.decode(data)
        for name, index in _PATH_STEP.findall(path):
            value = value[int(index)] if index else value[name]
    except (KeyError, IndexError, TypeError, msgspec.DecodeError):
        value = data
    words = words.replace("`", "")
    field = path.removeprefix(".") or "data"
    return f"field {field!r} = {shown(value)}: {words} ({type_name(kind)})"
