"""Refuses types of which not every message could be written and read back, when a codec is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from headwater.errors import DeclarationError

NOT_A_KEY: Final = (
    "cannot be written and read back as a key of JSON. Use keys of type str or int, a list of pairs, or "
    "codec='msgpack'."
)

# --- msgspec's types ------------------------------------------------------------------------------

_SCALARS: Final[dict[type, Any]] = {
    inspect.NoneType: None,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
}
_DECODED: Final = (dict, list, str, int, float, bool, bytes)
"""Types that msgspec makes for a class that it does not know, such as ``Iterable``."""
_NOT_KEYS: Final = (
    inspect.BoolType,
    inspect.TupleType,
    inspect.CollectionType,
    inspect.NamedTupleType,
    inspect.StructType,
    inspect.DataclassType,
)
"""Types that msgspec does not write as the key of a JSON object."""


def check_type(where: str, info: inspect.Type, *, text_keys: bool) -> None:
    """Raise `DeclarationError` for a type, or a type in it, that a document of msgspec cannot carry.
    ``text_keys`` tells that the keys of a dict are written as text, as in JSON."""
    for place, one in _types(where, info):
        if isinstance(one, inspect.CustomType) and not _is_decoded(one.cls):
            raise DeclarationError(
                f"{place}: a {one.cls.__name__} cannot be written. Use a type that msgspec knows, or a "
                "pydantic model."
            )
        if text_keys and isinstance(one, inspect.DictType) and isinstance(one.key_type, _NOT_KEYS):
            key = type(one.key_type).__name__.removesuffix("Type").lower()
            raise DeclarationError(f"{place}: a {key} {NOT_A_KEY}")
        check_values(place, one)


def check_values(where: str, info: inspect.Type, *, as_text: bool = False) -> None:
    """Raise `DeclarationError` if a value of a Literal or an Enum is read as another one, because text is
    converted: ``Literal["1", 1]``. With ``as_text`` numbers are written as text, too."""
    members = info.types if isinstance(info, inspect.UnionType) else (info,)
    kinds: list[Any] = []
    values: list[Any] = []
    for member in members:
        if isinstance(member, inspect.LiteralType):
            kinds.append(Literal[member.values])
            values += member.values
        elif isinstance(member, inspect.EnumType):
            kinds.append(member.cls)
            values += member.cls
        elif type(member) in _SCALARS:
            kinds.append(_SCALARS[type(member)])
    for value in values:
        written = value.value if isinstance(value, Enum) else value
        if as_text and written is not None:
            written = str(written)
        try:
            found = msgspec.convert(written, Union[tuple(kinds)], strict=False)  # noqa: UP007 - a list of members
        except msgspec.ValidationError:
            found = written
        if type(found) is not type(value) or found != value:
            raise DeclarationError(
                f"{where}: {value!r} would be read as {found!r}, because text is converted to the declared "
                "type. Leave out one of the two, or give one of them another value."
            )


def _is_decoded(cls: type) -> bool:
    try:
        return any(issubclass(kind, cls) for kind in _DECODED)
    except TypeError:
        return True  # a Protocol that cannot be checked


def _types(where: str, info: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Yield a type and all types in it, each once, with the attribute where it is."""
    rest: list[tuple[str, Any]] = [(where, info)]
    seen: set[int] = set()
    while rest:
        place, one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, inspect.Field):
            place = f"{place}.{one.name}"
        else:
            yield place, one
        if isinstance(one, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
            place = one.cls.__name__
        for name in one.__struct_fields__:
            value = getattr(one, name)
            parts = value if isinstance(value, tuple) else (value,)
            rest += [(place, p) for p in parts if isinstance(p, inspect.Type | inspect.Field)]


# --- pydantic's models ----------------------------------------------------------------------------


def check_model(kind: Any, *, text_keys: bool) -> bool:
    """Raise `DeclarationError` for a pydantic model, or a model in it, that does not read what it writes.
    ``text_keys`` tells that the keys of a dict are written as text.

    Return whether the models must be written with pydantic's ``round_trip``: without computed fields, which a
    model with ``extra="forbid"`` refuses, and with a `pydantic.Json` as text.
    """
    from pydantic import BaseModel, Json

    round_trip = False
    models, seen = [kind], set()
    while models:
        model = models.pop()
        if model in seen:
            continue
        seen.add(model)
        forbids = model.model_config.get("extra") == "forbid"
        round_trip |= forbids and bool(model.model_computed_fields)
        for attribute, field in model.model_fields.items():
            where = f"{model.__name__}.{attribute}"
            if not _converts(model):
                _check_names(where, model, attribute, field)
            for part in nested(field.annotation, *field.metadata):
                round_trip |= part is Json or isinstance(part, Json)
                if isinstance(part, type) and issubclass(part, BaseModel):
                    models.append(part)
                elif text_keys and get_origin(part) is dict and _is_tuple(get_args(part)[0]):
                    raise DeclarationError(f"{where}: a tuple {NOT_A_KEY}")
    return round_trip


def nested(*found: Any) -> Iterator[Any]:
    """Yield annotations and all in them: the arguments of generic types, the members of unions, metadata."""
    for one in found:
        yield one
        yield from nested(*get_args(one))


def fixed_values(annotation: Any) -> list[Any]:
    """Return the values that the Literals and Enums of an annotation allow, except None.

    >>> fixed_values(Literal["a", 1] | None)
    ['a', 1]
    """
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if value is not None]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return list(annotation)
    return [value for one in get_args(annotation) for value in fixed_values(one)]


def _is_tuple(annotation: Any) -> bool:
    return any((get_origin(one) or one) is tuple for one in nested(annotation))


def _converts(model: Any) -> bool:
    """Return whether the model's own code converts whole messages, and so may accept other names."""
    decorators = model.__pydantic_decorators__
    validators: Iterable[Any] = decorators.model_validators.values()
    return bool(decorators.model_serializers) or any(v.info.mode != "after" for v in validators)


def _check_names(where: str, model: Any, attribute: str, field: Any) -> None:
    if field.exclude:
        raise DeclarationError(
            f"{where} has exclude=True, so it is not written, and its value would be lost. Remove "
            "exclude=True, or use a private attribute for a value that is not part of the message."
        )
    written, read = field.serialization_alias or attribute, _names_read(model, attribute, field)
    if written not in read:
        raise DeclarationError(
            f"{where} is written as {written!r} and read as {' or '.join(map(repr, read))}. Use one "
            "alias=, or a validation_alias=AliasChoices(…) that has the name as it is written."
        )


def _names_read(model: Any, attribute: str, field: Any) -> list[str]:
    from pydantic import AliasChoices, AliasPath

    alias, config = field.validation_alias, model.model_config
    if alias is None:
        return [attribute]
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    if config.get("validate_by_alias") is False:
        choices = []
    found = [".".join(map(str, one.path)) if isinstance(one, AliasPath) else one for one in choices]
    if config.get("validate_by_name") or config.get("populate_by_name"):
        found.append(attribute)
    return found
