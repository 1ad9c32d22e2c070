"""Examines a handler's signature when it is declared: reports mistakes, and finds the way to call it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from headwater.errors import DeclarationError
from headwater.messages.codecs import type_name
from headwater.worker.declare.batches import Batch
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.dependencies import (
    Dependency,
    check_scopes,
    function_of,
    name_of,
    resolve,
    signature_of,
)

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_BY_NAME_ONLY = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)

Call = Callable[..., Any]
"""Function of the message, the delivery and, by name, the values of the handler's dependencies."""


class Bound(NamedTuple):
    """The way to call a handler.

    ``call(message, delivery, **values)`` calls it, and is a coroutine function if ``is_async``. ``plain`` is
    the handler itself if it takes only a message. ``needs`` are the parameters annotated with `Use`.
    """

    call: Call
    plain: Callable[[Any], Any] | None
    is_async: bool
    name: str
    needs: Mapping[str, Dependency]


def bind(
    handler: Callable[..., Any],
    message_type: Any,
    *,
    has_results: bool,
    in_batches: bool = False,
    optional: bool = False,
) -> Bound:
    """Return the way to call ``handler`` with a message or a `Batch`, and with the `Delivery` and dependencies
    for which it has parameters. With ``optional`` it need not take the message.

    Raises `DeclarationError` for a handler that cannot be called in this way.
    """
    name = name_of(handler)
    target = function_of(handler)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DeclarationError(f"handler {name} is a generator: it must return, not yield")
    signature = signature_of(handler, f"handler {name}")
    parameters, hints = signature.parameters, signature.hints
    needs = resolve(signature, f"handler {name}")
    wants_delivery = [p.name for p in parameters if hints.get(p.name) is Delivery]
    others = [p for p in parameters if p.name not in wants_delivery and p.name not in needs]
    if in_batches and wants_delivery:
        raise DeclarationError(
            f"handler {name}: a batch has no single Delivery for parameter {wants_delivery[0]!r}; use "
            "deliveries of the batch, one for each item"
        )
    takes = bool(others) and others[0].kind not in _BY_NAME_ONLY
    if not takes and not optional:
        raise DeclarationError(f"handler {name} takes no message: add a first parameter for it")
    for extra in others[1:] if takes else others:
        if extra.default is inspect.Parameter.empty and extra.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise DeclarationError(
                f"handler {name}: there is no value for parameter {extra.name!r}. A handler gets the "
                "message and, by a parameter annotated Delivery, its delivery; annotate other "
                "parameters with Use."
            )
    check = _check_batch if in_batches else _check_message
    if takes:
        check(name, hints.get(others[0].name), message_type)
    if has_results and hints.get("return", ...) is type(None):
        raise DeclarationError(
            f"handler {name} is declared to return None, so `into` would publish nothing"
        )
    is_async = inspect.iscoroutinefunction(target)
    check_scopes(needs, f"handler {name}", is_async=is_async)
    bound = _call if not needs else _call_with_values
    if takes:
        call = bound(handler, others[0], wants_delivery, parameters)
    else:
        call = _call_without_message(handler, wants_delivery)
    plain = None if wants_delivery or needs or not takes else handler
    return Bound(call, plain, is_async, name, needs)


def _check_message(name: str, annotated: Any, message_type: Any) -> None:
    """Raise `DeclarationError` if the handler expects another type than that of its stream."""
    if annotated is None or _fits(message_type, annotated):
        return
    expected, owned = (
        str(one) if get_origin(one) else type_name(one) for one in (annotated, message_type)
    )
    batch = ""
    if _is_batch(annotated, message_type):
        batch = "; this handler gets one message at a time, and one of @app.batch gets a Batch"
    raise DeclarationError(
        f"handler {name} expects {expected}, but its stream holds {owned}{batch}"
    )


def _check_batch(name: str, annotated: Any, message_type: Any) -> None:
    """Raise `DeclarationError` if a batch handler does not expect a `Batch` of the stream's type."""
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
    """Return whether a message of ``message_type`` fits a parameter with this annotation. An annotation that
    cannot be resolved fits."""
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


def _call_without_message(handler: Callable[..., Any], wants_delivery: list[str]) -> Call:
    return lambda _value, delivery, **values: handler(
        **dict.fromkeys(wants_delivery, delivery), **values
    )


def _call_with_values(
    handler: Callable[..., Any],
    message: inspect.Parameter,
    wants_delivery: list[str],
    _parameters: list[inspect.Parameter],
) -> Call:
    if message.kind is inspect.Parameter.POSITIONAL_ONLY:
        return lambda value, delivery, **values: handler(
            value, **dict.fromkeys(wants_delivery, delivery), **values
        )
    return lambda value, delivery, **values: handler(
        **{message.name: value}, **dict.fromkeys(wants_delivery, delivery), **values
    )
