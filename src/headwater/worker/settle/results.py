"""Converts the results of a handler with ``into=`` into entries of that stream.

Rule 1. None means no result. Each item of a list or a tuple is a result, unless messages of the stream are
        themselves lists or tuples. A NamedTuple is one result.
Rule 2. A result that a consumer of the stream would not read back equal is refused by the codec, and the delivery fails.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from headwater.errors import EncodeError
from headwater.groups.settling.settling import Addition
from headwater.worker.declare.stream import Stream


class Results:
    """Converts the results of the handler ``name`` into additions to ``into``."""

    def __init__(self, into: Stream[Any] | None, name: str) -> None:
        self._into = into
        self._name = name
        kind = None if into is None else into.type
        self._class = _checkable(kind)
        self._whole = holds_sequences(kind)

    def additions(self, result: Any) -> Sequence[Addition]:
        """Return the entries to publish. Raises `TypeError` or `EncodeError` for a result that is not a message of
        the stream."""
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
                f"{self._name} returned a value of type {type(one).__name__}, but stream {into.name!r} has "
                f"messages of type {self._class.__name__}"
            )
        try:
            return into.addition(one)
        except EncodeError as error:
            raise EncodeError(
                f"{self._name} returned a result for {into.name!r}: {error}"
            ) from None


def _checkable(kind: Any) -> type:
    """Return the class of the messages of a type: dict for a TypedDict, object for a type that cannot be
    checked."""
    if not isinstance(kind, type):
        return object
    return dict if issubclass(kind, dict) else kind


def holds_sequences(kind: Any) -> bool:
    """Return whether messages of this type are lists or tuples themselves.

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
