"""Codec fields: one stream field for each attribute, easy to write and read in any language.

``str`` is raw UTF-8, numbers are decimal text, ``bool`` is ``true`` or ``false``, dates and times are ISO 8601
(a ``datetime`` with a zone in UTC), ``bytes`` are raw, nested values are JSON. None is an absent field; an empty
value is an empty field. Unknown fields are ignored. If a field is repeated, its last value counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from headwater.errors import DecodeError, EncodeError
from headwater.messages.codecs import (
    MessageCodec,
    names,
    pydantic_words,
    shown,
    type_name,
)
from headwater.messages.keys import Pairs
from headwater.messages.shapes import UNSET, FieldKind, Shape, shapes_of


def text(value: Any) -> bytes:
    """Return a value as the text of one field.

    >>> text(17), text(True), text(1.5), text("né"), text([1, None])
    (b'17', b'true', b'1.5', b'n\\xc3\\xa9', b'[1,null]')
    """
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = next((w for kind, w in _WRITERS.items() if isinstance(value, kind)), _as_json)
    return writer(value)


def _time_text(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise ValueError(
            "a date and time without a time zone is ambiguous; use datetime.now(timezone.utc) "
            "or .replace(tzinfo=…)"
        )
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z").encode()


def _as_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


# Order matters for subclasses: a str Enum is written as an Enum, a bool not as an int, a datetime not
# as a date.
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    Enum: lambda value: text(value.value),
    str: str.encode,
    bool: lambda value: b"true" if value else b"false",
    int: lambda value: b"%d" % value,
    float: lambda value: float.__repr__(value).encode(),
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    datetime: _time_text,
    date: lambda value: value.isoformat().encode(),
    time: lambda value: value.isoformat().encode(),
    timedelta: lambda value: str(msgspec.to_builtins(value)).encode(),
    Decimal: lambda value: str(value).encode(),
    UUID: lambda value: str(value).encode(),
}


class FieldsCodec(MessageCodec):
    """Codec fields for Structs, dataclasses and TypedDicts.

    >>> class Order(msgspec.Struct):
    ...     id: int
    ...     paid: bool = False
    >>> codec = FieldsCodec(Order)
    >>> codec.encode(Order(id=17))
    [(b'id', b'17'), (b'paid', b'false')]
    >>> codec.decode([(b"id", b"17"), (b"paid", b"true"), (b"unknown", b"x")])
    Order(id=17, paid=True)
    """

    name = "fields"

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self.shapes = shapes_of(kind)
        self._by_field = {shape.field.encode(): shape for shape in self.shapes}
        self._none_when_missing = [s.field for s in self.shapes if s.none_when_missing]
        config = getattr(kind, "__struct_config__", None)
        self._tag: tuple[str, Any] | None = None
        if config is not None and config.tag is not None:
            self._tag = (config.tag_field, config.tag)
        self._is_dict = isinstance(kind, type) and issubclass(kind, dict)

    def encode(self, message: Any) -> Pairs:
        pairs: Pairs = []
        if self._tag is not None:
            pairs.append((self._tag[0].encode(), text(self._tag[1])))
        for shape, value in self._values(message):
            if value is None or value is UNSET:
                continue
            try:
                pairs.append((shape.field.encode(), self._write(shape, value)))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise EncodeError(
                    f"field {shape.field!r} = {shown(value)} cannot be written: {error}"
                ) from error
        if not pairs:
            raise EncodeError(f"{shown(message)} has no field that is not None: an entry needs one")
        return pairs

    def _values(self, message: Any) -> list[tuple[Shape, Any]]:
        try:
            if self._is_dict or isinstance(message, dict):
                return [(s, message[s.attribute]) for s in self.shapes if s.attribute in message]
            return [(shape, getattr(message, shape.attribute)) for shape in self.shapes]
        except (AttributeError, TypeError) as error:
            raise EncodeError(
                f"{shown(message)} is not a valid {type_name(self.kind)}: {error}"
            ) from error

    def _write(self, shape: Shape, value: Any) -> bytes:
        if shape.kind is FieldKind.JSON:
            return msgspec.json.encode(value)
        if shape.naive_time and value.tzinfo is None:
            return str(value.isoformat()).encode()
        return text(value)

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        values = self._read(flat)
        if self._tag is not None:
            values.setdefault(self._tag[0], self._tag[1])
        try:
            return msgspec.convert(values, self.kind, strict=False)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise DecodeError(self._complaint(values, flat, error)) from None

    def _read(self, flat: Sequence[bytes]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        known = self._by_field
        for name, raw in zip(flat[::2], flat[1::2], strict=False):
            shape = known.get(name)
            if shape is not None:
                values[shape.field] = self._read_one(shape, raw)
            elif self._tag is not None and name == self._tag[0].encode():
                values[self._tag[0]] = _unicode(self._tag[0], raw)
        for field in self._none_when_missing:
            values.setdefault(field, None)
        return values

    def _read_one(self, shape: Shape, raw: bytes) -> Any:
        if shape.kind is FieldKind.RAW:
            return raw
        if shape.kind is FieldKind.JSON:
            try:
                return msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise DecodeError(
                    f"field {shape.field!r} = {shown(raw)} is not a JSON document "
                    f"({shape.type_name} expected): {error}"
                ) from None
        found = _unicode(shape.field, raw)
        if shape.kind is FieldKind.TIME and not shape.naive_time:
            return _with_zone(found)
        return found

    def _complaint(self, values: dict[str, Any], flat: Sequence[bytes], error: Exception) -> str:
        """Return msgspec's error text, with the field and its value."""
        for shape in self.shapes:
            if shape.required and shape.field not in values:
                return (
                    f"field {shape.field!r} ({shape.type_name}) is missing; the entry has the "
                    f"fields {names(flat)}"
                )
        words = str(error).replace("`", "")
        place = words.partition(" - at $.")[2]
        field = place.partition(".")[0].partition("[")[0]
        if field not in values:
            return f"{words} ({type_name(self.kind)})"
        expected = next((s.type_name for s in self.shapes if s.field == field), "tag")
        return (
            f"field {field!r} = {shown(values[field])} is not a valid {expected}: "
            f"{words.partition(' - at ')[0]}"
        )


class PydanticFieldsCodec(FieldsCodec):
    """Codec fields for a pydantic model. Its aliases are the field names."""

    def _values(self, message: Any) -> list[tuple[Shape, Any]]:
        try:
            values = message.model_dump(by_alias=True)
        except AttributeError as error:
            raise EncodeError(f"{shown(message)} is not a valid {type_name(self.kind)}") from error
        return [(s, values.get(s.field, values.get(s.attribute))) for s in self.shapes]

    def _write(self, shape: Shape, value: Any) -> bytes:
        from pydantic_core import to_json, to_jsonable_python

        if shape.kind is FieldKind.JSON:
            return to_json(value)
        if any(isinstance(value, known) for known in _WRITERS):
            return text(value)
        return text(to_jsonable_python(value))

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        from pydantic import ValidationError

        try:
            return self.kind.model_validate(self._read(flat))
        except ValidationError as error:
            raise DecodeError(
                f"{pydantic_words(error)}; the entry has the fields {names(flat)}"
            ) from None


def _unicode(field: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"field {field!r} = {shown(raw)} is not UTF-8 text: {error}") from None


def _with_zone(found: str) -> str:
    """Return the text of a date and time, with ``Z`` added if it has no zone: codec fields reads it as UTC."""
    clock = found[10:]
    if clock[:1] in ("T", "t", " ") and not (
        clock[-1:] in ("Z", "z") or "+" in clock or "-" in clock
    ):
        return found + "Z"
    return found
