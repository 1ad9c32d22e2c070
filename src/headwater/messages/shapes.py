"""Maps each attribute of a message type to a stream field.

The value of a stream field is bytes without a type. The declared type decides how the bytes are read: as
text, as raw bytes, or as a JSON document. A type that could be two of these (``str | list[int]``), or text of
two types (``str | int``, ``Any``), is refused, because its values could not be read back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import inspect

from headwater.errors import DeclarationError
from headwater.messages.codecs import is_pydantic, type_name
from headwater.messages.declared import check_values
from headwater.messages.keys import RESERVED_NAMES, is_reserved


class FieldKind(Enum):
    """The way to read the bytes of a field."""

    TEXT = "text"
    TIME = "time"
    """The text of a date and time, read as UTC if it has no zone."""
    RAW = "bytes"
    JSON = "json"


class Shape(NamedTuple):
    """One attribute: ``attribute`` in Python, ``field`` in the stream."""

    attribute: str
    field: str
    kind: FieldKind
    required: bool
    """True if a missing field is an error; False if the attribute has a default or may be None."""
    none_when_missing: bool
    """True if the attribute has no default and may be None; then a missing field is None."""
    naive_time: bool
    """True if the attribute is declared without a time zone (``Meta(tz=False)``)."""
    type_name: str
    exact: tuple[type, ...] = ()
    """Classes whose values are certainly read back, so that a message need not be decoded to know."""


_EXACT: dict[type, type] = {
    inspect.NoneType: NoneType,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.DateTimeType: datetime,
    inspect.DateType: date,
    inspect.UUIDType: UUID,
    inspect.DecimalType: Decimal,
}
_TEXT = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.TimeType,
    inspect.DateType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
)
_RAW = (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType)


def shapes_of(kind: Any) -> list[Shape]:
    """Return the shapes of a message type's attributes, in order. Raises `DeclarationError` for a type
    without attributes, and for an attribute that a field cannot carry."""
    found = _pydantic_shapes(kind) if is_pydantic(kind) else _msgspec_shapes(kind)
    for shape in found:
        refuse_reserved(f"{type_name(kind)}.{shape.attribute}", shape.field)
    return found


def refuse_reserved(where: str, field: str) -> None:
    """Raise `DeclarationError` for a reserved field name."""
    if is_reserved(field):
        raise DeclarationError(
            f"{where}: the field name {field!r} is reserved ({RESERVED_NAMES}); use another name."
        )


def _msgspec_shapes(kind: Any) -> list[Shape]:
    try:
        info = inspect.type_info(kind)
    except (TypeError, ValueError, NameError) as error:
        raise DeclarationError(f"{type_name(kind)} cannot be a message type: {error}") from error
    if not isinstance(info, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
        raise DeclarationError(
            f"{type_name(kind)} has no attributes that could be fields: codec fields needs a "
            "msgspec Struct, a dataclass, a TypedDict or a pydantic model. Any type msgspec knows "
            "can be written with codec='json'."
        )
    if isinstance(info, inspect.StructType) and info.array_like:
        raise DeclarationError(
            f"{type_name(kind)} has array_like=True, so it is written as an array, which codec fields "
            "has not. Remove array_like=True, or use codec='json'."
        )
    return [_shape(kind, field) for field in info.fields]


def _shape(kind: Any, field: inspect.Field) -> Shape:
    where = f"{type_name(kind)}.{field.name}"
    may_be_none = _may_be_none(field.type)
    if may_be_none and not field.required and field.default is not None:
        raise DeclarationError(
            f"{where} may be None but has another default: codec fields writes None by leaving the "
            "field out, and it would be read as the default. Make None the default, or use "
            "codec='json'."
        )
    found = _kind(where, field.type, _refused_class)
    if found is FieldKind.TEXT:
        check_values(where, field.type, as_text=True)
    checks = hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_attrs__")  # by its own code
    return Shape(
        field.name,
        field.encode_name,
        found,
        field.required and not may_be_none,
        field.required and may_be_none,
        isinstance(field.type, inspect.DateTimeType) and field.type.tz is False,
        _name(field.type),
        () if checks else _exact(field.type),
    )


def _exact(info: inspect.Type) -> tuple[type, ...]:
    """Return the classes whose values are read back for certain: a class and None, without limits to its values."""
    members = info.types if isinstance(info, inspect.UnionType) else (info,)
    if sum(not isinstance(member, inspect.NoneType) for member in members) > 1:
        return ()
    return tuple(
        _EXACT[type(member)]
        for member in members
        if type(member) in _EXACT and member == type(member)()
    )


def _refused_class(where: str, found: inspect.CustomType) -> FieldKind:
    raise DeclarationError(
        f"{where}: a {type_name(found.cls)} cannot be written as a field. Use a type that msgspec "
        "knows, or a pydantic model."
    )


def _may_be_none(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return any(isinstance(member, inspect.NoneType) for member in info.types)
    return isinstance(info, inspect.NoneType)


def _kind(
    where: str, info: inspect.Type, custom: Callable[[str, inspect.CustomType], FieldKind]
) -> FieldKind:
    """Return the way to read a field of this declared type."""
    if isinstance(info, inspect.Metadata):
        return _kind(where, info.type, custom)
    if isinstance(info, inspect.CustomType):
        return custom(where, info)
    if isinstance(info, inspect.AnyType):
        raise DeclarationError(
            f"{where} is declared Any, but a field is text or bytes without a type, so 17 would be read as "
            "'17'. Declare the type, or use codec='json'."
        )
    if isinstance(info, inspect.UnionType):
        members = [m for m in info.types if not isinstance(m, inspect.NoneType)]
        kinds = {_kind(where, member, custom) for member in members}
        if kinds <= {FieldKind.TEXT, FieldKind.TIME} and len(members) > 1:
            _refuse_str_and_other(where, info, members)
            return FieldKind.TEXT
        if len(kinds) > 1:
            raise DeclarationError(
                f"{where}: a field that may be {' or '.join(sorted(k.value for k in kinds))} "
                f"cannot be read back ({_name(info)}). Use one of them, or codec='json'."
            )
        return kinds.pop()
    if isinstance(info, inspect.DateTimeType):
        return FieldKind.TIME
    if isinstance(info, _TEXT):
        return FieldKind.TEXT
    return FieldKind.RAW if isinstance(info, _RAW) else FieldKind.JSON


def _refuse_str_and_other(where: str, info: inspect.Type, members: list[inspect.Type]) -> None:
    """Raise `DeclarationError` for a union of str and other types that are written as text."""
    if any(
        isinstance(one.type if isinstance(one, inspect.Metadata) else one, inspect.StrType)
        for one in members
    ):
        raise DeclarationError(
            f"{where} may be a str or another type that is written as text ({_name(info)}), and would "
            "always be read as a str. Use one of them, or codec='json'."
        )


def _name(info: inspect.Type) -> str:
    """Return a declared type's name for an error."""
    if isinstance(info, inspect.Metadata):
        return _name(info.type)
    if isinstance(info, inspect.UnionType):
        return " | ".join(_name(member) for member in info.types)
    if isinstance(info, inspect.NoneType):
        return "None"
    named = getattr(info, "cls", None)
    if named is not None:
        return type_name(named)
    return type(info).__name__.removesuffix("Type").lower()


def _pydantic_shapes(kind: Any) -> list[Shape]:
    from pydantic import Json, RootModel

    if issubclass(kind, RootModel):
        raise DeclarationError(
            f"{type_name(kind)} is a RootModel, whose value has no name that could be a field. Use "
            "codec='json'."
        )
    found = []
    for attribute, field in kind.model_fields.items():
        where = f"{type_name(kind)}.{attribute}"
        info = _pydantic_info(field.annotation)
        may_be_none = _may_be_none(info)
        required = field.is_required()
        if (
            may_be_none
            and not required
            and field.get_default(call_default_factory=True) is not None
        ):
            raise DeclarationError(
                f"{where} may be None but has another default: codec fields writes None by leaving "
                "the field out. Make None the default, or use codec='json'."
            )
        way = _kind(where, info, _pydantic_class)
        if any(one is Json or isinstance(one, Json) for one in field.metadata):
            way = FieldKind.TEXT  # the text is the document
        found.append(
            Shape(
                attribute,
                field.serialization_alias or attribute,
                way,
                required and not may_be_none,
                required and may_be_none,
                False,
                type_name(field.annotation),
            )
        )
    return found


def _pydantic_info(annotation: Any) -> inspect.Type:
    """Return msgspec's view of an annotation, with a class that is written as text for what msgspec does not
    know."""
    try:
        return inspect.type_info(annotation)
    except (TypeError, ValueError, NameError):
        if get_origin(annotation) in (Union, UnionType):
            return inspect.UnionType(tuple(_pydantic_info(one) for one in get_args(annotation)))
        return inspect.CustomType(object)


def _pydantic_class(_where: str, found: inspect.CustomType) -> FieldKind:
    """Return the way to read a class that msgspec does not know: a model is JSON, any other class (a URL,
    an address) is text."""
    return FieldKind.JSON if is_pydantic(found.cls) else FieldKind.TEXT


UNSET: object = msgspec.UNSET
