"""What a handler with ``into=`` returns, as entries of that stream.

Rule 1. None means no result. A list or a tuple is one result for each item, unless the stream's own
        messages are lists or tuples; a NamedTuple is one result.
Rule 2. A result that a consumer of the stream could not read is refused: it is a failed delivery.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from headwater.errors import DecodeError, EncodeError
from headwater.groups.settling import Addition
from headwater.worker.stream import Stream


class Results:
    """Turns what the handler ``name`` returns into additions to ``into``."""

    def __init__(self, into: Stream[Any] | None, name: str) -> None:
        self._into = into
        self._name = name
        kind = None if into is None else into.type
        self._class = _checkable(kind)
        self._whole = holds_sequences(kind)

    def additions(self, result: Any) -> Sequence[Addition]:
        """The entries to publish. `TypeError` or `EncodeError` for what does not fit."""
        if self._into is None or result is None:
            return ()
        if type(result) is self._class:
            return (self._addition(self._into, result),)
        if isinstance(result, list | tuple) and not self._whole and not hasattr(result, "_fields"):
            return [self._addition(self._into, one) for one in result]
        return [self._addition(self._into, result)]

    def _addition(self, into: Stream[Any], one: Any) -> Addition:
        if not isinstance(one, self._class):
            raise TypeError(
                f"{self._name} returned a value of type {type(one).__name__}, {into.name!r} holds "
                f"{self._class.__name__}"
            )
        addition = into.addition(one)
        try:
            into.codec.decode(addition.fields)
        except DecodeError as error:
            raise EncodeError(
                f"{self._name} returned a result that no consumer of {into.name!r} could read: "
                f"{error}"
            ) from None
        return addition


def _checkable(kind: Any) -> type:
    """The class whose instances a type's messages are; dict for a TypedDict, object for the rest."""
    if not isinstance(kind, type):
        return object
    return dict if issubclass(kind, dict) else kind


def holds_sequences(kind: Any) -> bool:
    """Whether messages of this type are lists or tuples themselves.

    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     left: int
    >>> [holds_sequences(one) for one in (list[int], tuple[int, ...] | None, dict[str, int], Pair)]
    [True, True, False, False]
    """
    origin = get_origin(kind)
    if origin is Annotated:
        return holds_sequences(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return any(holds_sequences(one) for one in get_args(kind))
    found = origin or kind
    if not isinstance(found, type) or found is object or hasattr(found, "_fields"):
        return False
    return issubclass(found, list | tuple) or issubclass(list, found)
