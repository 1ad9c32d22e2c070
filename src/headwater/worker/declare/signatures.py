"""The parameters and annotations of a function, read when it is declared."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from headwater.errors import DeclarationError
from headwater.worker.declare.delivery import Delivery


class Signature(NamedTuple):
    """Parameters and annotations of a function. ``hints`` are types without ``Annotated``; ``extras`` are the
    same with it. An annotation that cannot be resolved is only in ``unresolved``, with the reason."""

    parameters: list[inspect.Parameter]
    hints: dict[str, Any]
    extras: dict[str, Any]
    unresolved: dict[str, str]


def function_of(given: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a partial or a callable object calls."""
    target = given.func if isinstance(given, functools.partial) else given
    if inspect.isroutine(target) or isinstance(target, type):
        return target
    return type(target).__call__


def name_of(given: object) -> str:
    """Return the name of a function for errors."""
    return getattr(given, "__qualname__", None) or repr(given)


def signature_of(given: Callable[..., Any], what: str) -> Signature:
    """Return the signature of ``given``. Raises `DeclarationError`, which names it ``what``, if there is
    none."""
    try:
        parameters = list(inspect.signature(given).parameters.values())
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{what} has no signature: {error}") from error
    target = function_of(given)
    annotated = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        hints = get_type_hints(annotated)
        found = Signature(parameters, hints, get_type_hints(annotated, include_extras=True), {})
    except (NameError, TypeError, AttributeError):
        # An annotation has a name that only a type checker knows. Resolve the others one by one.
        found = _one_by_one(parameters, annotated)
    for name, hint in found.hints.items():
        if get_origin(hint) in (Union, types.UnionType) and Delivery in get_args(hint):
            found.hints[name] = Delivery  # `Delivery | None`, so that a test can leave it out
    return found


def _one_by_one(parameters: list[inspect.Parameter], target: Any) -> Signature:
    names = getattr(inspect.unwrap(target), "__globals__", {})
    found = Signature(parameters, {}, {}, {})
    for one in parameters:
        if one.annotation is inspect.Parameter.empty:
            continue
        alone = SimpleNamespace(__annotations__={one.name: one.annotation})
        try:
            found.hints.update(get_type_hints(alone, names))
            found.extras.update(get_type_hints(alone, names, include_extras=True))
        except (NameError, TypeError, AttributeError) as error:
            if one.annotation == Delivery.__name__:
                found.hints[one.name] = Delivery
            else:
                found.unresolved[one.name] = f"{one.annotation}: {error}"
    return found
