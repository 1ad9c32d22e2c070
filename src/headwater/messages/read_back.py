"""Compares a message with the one that its reader would get.

Rule 1. Values are equal if ``==`` says so, or if both are NaN. Of dates and times with a zone the moment counts.
Rule 2. A list and a tuple are equal if their items are: a ``Sequence`` is read as a list.
Rule 3. Objects that are not equal are compared by their attributes, because ``==`` may mean identity, may count
        a pydantic model's private attributes, and is false for NaN. An instance of a derived class is read as one
        of the declared class, which must have all its attributes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final, NamedTuple

MISSING: Final = object()
"""Stands for an attribute or a key that one of the two messages lacks."""

NOT_IN_JSON: Final = (
    "JSON has no NaN and no infinities. Declare `float | None` and send None, or use "
    "codec='msgpack'"
)
WHOLE_MINUTES: Final = "Use a UTC offset of whole minutes, such as timezone.utc"


class Difference(NamedTuple):
    """A value that a reader would get as another one."""

    place: str
    """Its path in the message, such as ``lines[2].price``; empty for the message itself."""
    sent: Any
    found: Any


def difference(sent: Any, found: Any, place: str = "") -> Difference | None:
    """Return the first difference between a message and what was read, or None if they are equal."""
    if _equal(sent, found):
        return None
    parts = _parts(sent, found)
    if parts is None:
        return Difference(place.removeprefix("."), sent, found)
    each = (difference(one, other, place + step) for step, one, other in parts)
    return next((one for one in each if one is not None), None)


def not_in_json(value: Any, place: str = "") -> Difference | None:
    """Return the first number in ``value`` that JSON lacks, as a `Difference` to None; None if JSON has all of them."""
    if isinstance(value, float):
        return None if math.isfinite(value) else Difference(place.removeprefix("."), value, None)
    each = (not_in_json(one, place + step) for step, one, _ in _parts(value, value) or ())
    return next((one for one in each if one is not None), None)


def remedy(sent: Any) -> str:
    """Return what a sender can do about a value that would change."""
    if isinstance(sent, float) and not math.isfinite(sent):
        return NOT_IN_JSON
    if isinstance(sent, datetime | time) and has_seconds_in_offset(sent):
        return WHOLE_MINUTES
    if hasattr(sent, "get_secret_value"):  # pydantic writes asterisks, which look the same
        return "Write the secret with a @field_serializer of its model, or declare a str"
    return "Send a value of the declared type, or declare the type of this value"


def has_seconds_in_offset(value: datetime | time) -> bool:
    """Return whether the UTC offset has seconds, which ISO 8601 lacks. Zones of before 1937 have such offsets."""
    offset = value.utcoffset()
    return offset is not None and bool(offset % timedelta(minutes=1))


def _equal(sent: Any, found: Any) -> bool:
    try:
        same = sent is found or bool(sent == found)
    except Exception:  # classes define == as they like; Decimal's signalling NaN refuses it
        same = False
    if same:
        return True
    if type(sent) is type(found) and isinstance(sent, float | Decimal | complex):
        return repr(sent) == repr(found)
    if isinstance(sent, datetime) and isinstance(found, datetime):
        # == of two zones is false in the hour that a clock shows twice (PEP 495); a difference is not
        with_zones = sent.utcoffset() is not None and found.utcoffset() is not None
        return with_zones and sent - found == timedelta(0)
    return False


def _parts(sent: Any, found: Any) -> Iterable[tuple[str, Any, Any]] | None:
    """Return the parts of two values that must be equal, each with its step in the path; None if the two
    are equal only as a whole."""
    if isinstance(sent, dict) and isinstance(found, dict):
        return _entries(sent, found)
    if isinstance(sent, list | tuple) and isinstance(found, list | tuple):
        return _items(sent, found)
    if isinstance(sent, set | frozenset) and isinstance(found, set | frozenset):
        return _items(sorted(sent, key=repr), sorted(found, key=repr))
    names, own = _attributes(found), _attributes(sent)
    if names is not None and isinstance(sent, dict):
        return _keys(sent, found, names)
    if names is None or own is None or not isinstance(sent, type(found)):
        return None
    return [(f".{n}", getattr(sent, n, MISSING), getattr(found, n, MISSING)) for n in own]


def _keys(sent: dict[Any, Any], found: Any, names: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """Return the parts of a dict that was sent instead of an object, with its attributes or its fields as keys."""
    fields = getattr(type(found), "__struct_encode_fields__", ())
    return [
        (f".{key}", value, getattr(found, key) if key in names else MISSING)
        for key, value in sent.items()
        if key in names or key not in fields
    ]


def _items(sent: Sequence[Any], found: Sequence[Any]) -> Iterable[tuple[str, Any, Any]] | None:
    if len(sent) != len(found):
        return None
    return [(f"[{n}]", one, other) for n, (one, other) in enumerate(zip(sent, found, strict=True))]


def _entries(sent: dict[Any, Any], found: dict[Any, Any]) -> Iterable[tuple[str, Any, Any]]:
    for key, value in sent.items():
        if key in found:
            yield f".{key}", value, found[key]
    lost, new = [k for k in sent if k not in found], [k for k in found if k not in sent]
    for key, other in zip_longest(lost, new, fillvalue=MISSING):
        if key is not MISSING and other is not MISSING:
            yield f".{key}", key, other
        yield f".{key}", sent.get(key, MISSING), found.get(other, MISSING)


def _attributes(value: Any) -> Sequence[str] | None:
    """Return the names of the attributes that are part of a message, or None for a value without such."""
    kind = type(value)
    if hasattr(kind, "__struct_fields__"):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if hasattr(kind, "model_fields"):
        return [*kind.model_fields, *(getattr(value, "model_extra", None) or ())]
    if hasattr(kind, "__attrs_attrs__"):
        return [field.name for field in kind.__attrs_attrs__]
    return None
