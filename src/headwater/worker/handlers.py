"""A handler's signature, looked at once, at its declaration."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from headwater.errors import DeclarationError
from headwater.messages.codecs import type_name
from headwater.worker.batches import Batch
from headwater.worker.delivery import Delivery

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Call = Callable[[Any, Delivery], Any]


class Bound(NamedTuple):
    """``call(message, delivery)`` calls the handler; a coroutine function if ``is_async``."""

    call: Call
    is_async: bool
    name: str


def bind(
    handler: Callable[..., Any], message_type: Any, *, has_results: bool, in_batches: bool = False
) -> Bound:
    """How to call ``handler`` with a message, or a `Batch`, and, where it names one, a `Delivery`.

    Raises `DeclarationError` for a handler that cannot be called so.
    """
    name = getattr(handler, "__qualname__", None) or repr(handler)
    target = _function(handler)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DeclarationError(f"handler {name} is a generator: it must return, not yield")
    parameters, hints = _signature(handler, target, name)
    wants_delivery = [p.name for p in parameters if hints.get(p.name) is Delivery]
    others = [p for p in parameters if p.name not in wants_delivery]
    if in_batches and wants_delivery:
        raise DeclarationError(
            f"handler {name}: a batch has no single Delivery for parameter {wants_delivery[0]!r}; use "
            "deliveries of the batch, one for each item"
        )
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
    check = _check_batch if in_batches else _check_message
    check(name, hints.get(others[0].name), message_type)
    if has_results and hints.get("return", ...) is type(None):
        raise DeclarationError(
            f"handler {name} is declared to return None, so `into` would publish nothing"
        )
    return Bound(
        _call(handler, others[0], wants_delivery, parameters),
        inspect.iscoroutinefunction(target),
        name,
    )


def _function(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a partial or a callable object."""
    target = handler.func if isinstance(handler, functools.partial) else handler
    if inspect.isroutine(target) or isinstance(target, type):
        return target
    return type(target).__call__


def _signature(
    handler: Callable[..., Any], target: Callable[..., Any], name: str
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"handler {name} has no signature to look at: {error}") from error
    try:
        hints = get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        # A name that only a type checker knows. What is annotated with a class counts all the same.
        known = [p for p in parameters if p.annotation is not inspect.Parameter.empty]
        hints = {p.name: p.annotation for p in known if isinstance(p.annotation, type)}
        hints |= {p.name: Delivery for p in parameters if p.annotation == Delivery.__name__}
    return parameters, hints


def _check_message(name: str, annotated: Any, message_type: Any) -> None:
    """A handler that expects another type than its stream holds is a mistake."""
    if annotated is None or _fits(message_type, annotated):
        return
    expected, owned = (
        str(one) if get_origin(one) else type_name(one) for one in (annotated, message_type)
    )
    batch = ""
    if _is_batch(annotated, message_type):
        batch = "; a handler gets one message at a time, one of @app.batch gets a Batch"
    raise DeclarationError(f"handler {name} expects {expected}, its stream holds {owned}{batch}")


def _check_batch(name: str, annotated: Any, message_type: Any) -> None:
    """A batch handler that expects no `Batch`, or one of other messages, is a mistake."""
    if get_origin(annotated) is Annotated:
        annotated = get_args(annotated)[0]
    expected = get_origin(annotated) or annotated
    if annotated in (None, Any) or not isinstance(expected, type):
        return
    items = get_args(annotated)
    if issubclass(Batch, expected) and (not items or _fits(message_type, items[0])):
        return
    shown = str(annotated) if items else type_name(annotated)
    raise DeclarationError(
        f"handler {name} expects {shown}; a handler of @app.batch gets a "
        f"Batch[{type_name(message_type)}]"
    )


def _fits(message_type: Any, annotated: Any) -> bool:
    """Whether a message of ``message_type`` may be given to a parameter with this annotation. True
    for whatever cannot be told."""
    origin = get_origin(annotated)
    if origin is Annotated:
        return _fits(message_type, get_args(annotated)[0])
    if origin in (Union, types.UnionType):
        return any(_fits(message_type, one) for one in get_args(annotated))
    if annotated is Any or message_type is Any:
        return True
    expected, owned = origin or annotated, get_origin(message_type) or message_type
    if not isinstance(expected, type) or not isinstance(owned, type):
        return True
    try:
        return issubclass(owned, expected)
    except TypeError:  # a TypedDict, or a Protocol with attributes
        return not issubclass(expected, dict) or issubclass(owned, dict)


def _is_batch(annotated: Any, message_type: Any) -> bool:
    return any(_fits(message_type, one) for one in get_args(annotated))


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
