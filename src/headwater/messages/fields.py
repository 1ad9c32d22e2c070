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

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.messages.codecs import (
    MessageCodec,
    decoder_of,
    names,
    pydantic_words,
    shown,
    type_name,
)
from headwater.messages.declared import check_model, fixed_values
from headwater.messages.keys import Pairs
from headwater.messages.read_back import (
    WHOLE_MINUTES,
    Difference,
    has_seconds_in_offset,
    not_in_json,
)
from headwater.messages.shapes import UNSET, FieldKind, Shape, refuse_reserved, shapes_of


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


def _clock_text(value: time) -> bytes:
    if has_seconds_in_offset(value):
        raise ValueError(f"its UTC offset has seconds. {WHOLE_MINUTES}")
    return value.isoformat().encode()


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
    time: _clock_text,
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
        self._check_declared()
        self._by_field = {shape.field.encode(): shape for shape in self.shapes}
        self._none_when_missing = [s.field for s in self.shapes if s.none_when_missing]
        config = getattr(kind, "__struct_config__", None)
        self._tag: tuple[str, Any] | None = None
        if config is not None and config.tag is not None:
            self._tag = (config.tag_field, config.tag)
            refuse_reserved(type_name(kind), config.tag_field)
        self._is_dict = isinstance(kind, type) and issubclass(kind, dict)

    def _check_declared(self) -> None:
        """Raise `DeclarationError` if a nested value could not be written or read back."""
        decoder_of(msgspec.json.Decoder, self.kind)

    def encode(self, message: Any) -> Pairs:
        pairs: Pairs = []
        if self._tag is not None:
            pairs.append((self._tag[0].encode(), text(self._tag[1])))
        sure = type(message) is self.kind  # an instance of a derived class may have more attributes
        for shape, value in self._values(message):
            if type(value) not in shape.exact:
                sure = False
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
        return pairs if sure else self._read_back(message, pairs)

    def _not_in_json(self, message: Any) -> Difference | None:
        nested = (pair for pair in self._values(message) if pair[0].kind is FieldKind.JSON)
        found = (not_in_json(value, shape.field) for shape, value in nested)
        return next((one for one in found if one is not None), None)

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
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise DecodeError(self._complaint(values, flat, error)) from None

    def _read(self, flat: Sequence[bytes]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        known = self._by_field
        for name, raw in zip(flat[::2], flat[1::2], strict=False):
            shape = known.get(name)
            if shape is not None:
                values[shape.field] = self._read_one(shape, raw)
            elif self._tag is not None and name == self._tag[0].encode():
                field, tag = self._tag
                values[field] = tag if raw == text(tag) else _unicode(field, raw)
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
    """Codec fields for a pydantic model. Its aliases are the field names. Computed fields are not written."""

    def __init__(self, kind: Any) -> None:
        self._round_trip = check_model(kind, text_keys=True)
        super().__init__(kind)

    def _check_declared(self) -> None:
        """Raise `DeclarationError` for a value of a Literal or an Enum that pydantic does not read from its text."""
        from pydantic import TypeAdapter, ValidationError

        for shape in self.shapes:
            annotation = self.kind.model_fields[shape.attribute].annotation
            values = fixed_values(annotation) if shape.kind is FieldKind.TEXT else []
            for value in values:
                try:
                    found = TypeAdapter(annotation).validate_python(text(value).decode())
                except ValidationError:
                    found = None
                if found != value:
                    raise DeclarationError(
                        f"{type_name(self.kind)}.{shape.attribute}: {value!r} is written as the text "
                        f"{text(value).decode()!r}, and pydantic does not read it back. Use str values, an "
                        "IntEnum, or codec='json'."
                    )

    def _values(self, message: Any) -> list[tuple[Shape, Any]]:
        try:
            values = message.model_dump(by_alias=True, round_trip=self._round_trip)
        except AttributeError as error:
            raise EncodeError(f"{shown(message)} is not a valid {type_name(self.kind)}") from error
        return [(shape, values.get(shape.field)) for shape in self.shapes]

    def _write(self, shape: Shape, value: Any) -> bytes:
        from pydantic_core import to_json, to_jsonable_python

        if shape.kind is FieldKind.JSON:
            return to_json(value)
        if type(value) in _WRITERS or any(isinstance(value, known) for known in _WRITERS):
            return text(value)
        return text(to_jsonable_python(value))

    def decode_flat(self, flat: Sequence[bytes]) -> Any:
        from pydantic import ValidationError

        try:
            # strict=False: a strict model would refuse the text of a number
            return self.kind.model_validate(self._read(flat), strict=False)
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
