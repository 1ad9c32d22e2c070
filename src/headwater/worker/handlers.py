"""A handler's signature, looked at once, at its declaration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from headwater.errors import DeclarationError
from headwater.worker.delivery import Delivery

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Call = Callable[[Any, Delivery], Any]


class Bound(NamedTuple):
    """``call(message, delivery)`` calls the handler; awaitable if ``is_async``."""

    call: Call
    is_async: bool
    name: str


def bind(handler: Callable[..., Any], message_type: Any, *, has_results: bool) -> Bound:
    """How to call ``handler`` with a message and, where it names one, a `Delivery`.

    Raises `DeclarationError` for a handler that cannot be called so.
    """
    name = getattr(handler, "__qualname__", None) or repr(handler)
    target = handler.func if isinstance(handler, functools.partial) else handler
    if not inspect.isroutine(target) and callable(target):
        target = type(target).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DeclarationError(f"handler {name} is a generator: it must return, not yield")
    parameters, hints = _signature(handler, name)
    wants_delivery = [p.name for p in parameters if hints.get(p.name) is Delivery]
    others = [p for p in parameters if p.name not in wants_delivery]
    if not others or others[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise DeclarationError(f"handler {name} takes no message: its first parameter gets it")
    for extra in others[1:]:
        if extra.default is inspect.Parameter.empty and extra.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise DeclarationError(
                f"handler {name}: nothing is known to give to parameter {extra.name!r}. A handler "
                "gets the message and, by a parameter annotated Delivery, its delivery."
            )
    _check_message(name, hints.get(others[0].name), message_type)
    if has_results and hints.get("return", ...) is type(None):
        raise DeclarationError(
            f"handler {name} is declared to return None, so `into` would publish nothing"
        )
    return Bound(
        _call(handler, others[0], wants_delivery, parameters),
        inspect.iscoroutinefunction(target),
        name,
    )


def _signature(
    handler: Callable[..., Any], name: str
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"handler {name} has no signature to look at: {error}") from error
    try:
        hints = get_type_hints(handler)
    except (NameError, TypeError, AttributeError):
        # A name that only a type checker knows. What is annotated with a class counts all the same.
        hints = {p.name: p.annotation for p in parameters if isinstance(p.annotation, type)}
        hints |= {p.name: Delivery for p in parameters if p.annotation == Delivery.__name__}
    return parameters, hints


def _check_message(name: str, annotated: Any, message_type: Any) -> None:
    """A handler that expects another class than its stream holds is a mistake."""
    if (
        isinstance(annotated, type)
        and isinstance(message_type, type)
        and not issubclass(message_type, annotated)
    ):
        raise DeclarationError(
            f"handler {name} expects {annotated.__name__}, its stream holds {message_type.__name__}"
        )


def _call(
    handler: Callable[..., Any],
    message: inspect.Parameter,
    wants_delivery: list[str],
    parameters: list[inspect.Parameter],
) -> Call:
    if not wants_delivery:
        return lambda value, _delivery: handler(value)
    if [p.name for p in parameters[:2] if p.kind in _POSITIONAL] == [message.name, *wants_delivery]:
        return handler
    if message.kind is inspect.Parameter.POSITIONAL_ONLY:
        return lambda value, delivery: handler(value, **dict.fromkeys(wants_delivery, delivery))
    return lambda value, delivery: handler(
        **{message.name: value}, **dict.fromkeys(wants_delivery, delivery)
    )
