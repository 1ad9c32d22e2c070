"""Dependencies of handlers: databases, clients, settings.

    async def open_db() -> AsyncIterator[Db]:
        async with connect("postgres://…") as db:
            yield db

    @app.consumer(orders, group="billing")
    async def bill(order: Order, db: Annotated[Db, Use(open_db)]) -> None: ...

Rule 1. A provider is opened once in its scope, even if several functions need it. Its own dependencies are
        opened before it. Values are closed in reverse order.
Rule 2. Providers of a delivery run where their handler runs: in the event loop, or in the thread or pool process
        of a handler that is not ``async``.
Rule 3. A provider of a delivery gets the handler's error and cannot suppress it. An error in opening or
        closing the provider fails the delivery, because the provider may not have committed its work.
"""

from __future__ import annotations

import functools
import inspect
import logging
import types
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from headwater.errors import DeclarationError
from headwater.worker.declare.delivery import Delivery

log = logging.getLogger("headwater.worker")

Scope = Literal["process", "delivery"]

SCOPES = ("process", "delivery")


class Use:
    """A dependency: a handler's parameter annotated ``Annotated[Db, Use(open_db)]`` gets the value of
    ``open_db``.

    >>> import asyncio
    >>> from typing import Annotated
    >>> from headwater import App, Stream
    >>> async def open_db():
    ...     print("open")
    ...     yield {}
    ...     print("close")
    >>> app, orders = App(), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order, db: Annotated[dict, Use(open_db)]) -> None:
    ...     print("handle", order)
    >>> async def main() -> None:
    ...     async with app.test() as t:
    ...         await t.send(orders, {"id": 17})
    >>> asyncio.run(main())
    open
    handle {'id': 17}
    close

    - ``provider``: a function or an async function, which returns the value; a generator or an async
      generator, which yields the value once and closes it afterwards; or a class, whose instance is the value
      and is entered if it is a context manager. Its own parameters may be annotated with `Use` and, in the
      scope of a delivery, with `Delivery`.
    - ``scope``: ``"process"`` opens the value once, before the worker reads its first entry, and closes it after
      the last settlement; each pool process opens and closes its own. ``"delivery"`` opens it before each call of
      the handler and closes it after the call, before the acknowledgement; an error in either fails the delivery.

    Raises `DeclarationError` for another scope, and for a provider that cannot be called. `App.consumer` raises
    it for a provider that needs itself or has a parameter without a value.
    """

    __module__ = "headwater"
    __slots__ = ("provider", "scope")

    def __init__(self, provider: Callable[..., Any], *, scope: Scope = "process") -> None:
        if scope not in SCOPES:
            raise DeclarationError(f"scope={scope!r} must be one of {', '.join(SCOPES)}")
        if not callable(provider):
            raise DeclarationError(
                f"Use({provider!r}): expected a function or a class, which the worker calls"
            )
        try:
            hash(provider)
        except TypeError as error:
            raise DeclarationError(f"Use({provider!r}): the provider must be hashable") from error
        self.provider = provider
        """The function or class that returns the value."""
        self.scope: Scope = scope
        """``"process"`` or ``"delivery"``."""

    def __repr__(self) -> str:
        scope = "" if self.scope == "process" else f", scope={self.scope!r}"
        return f"Use({name_of(self.provider)}{scope})"


Key = tuple[Callable[..., Any], Scope]
Values = dict[Key, Any]
"""The open values: provider and scope → value."""


class Dependency(NamedTuple):
    """A provider with its own dependencies. ``deliveries`` names its parameters that get the `Delivery`."""

    provider: Callable[..., Any]
    scope: Scope
    needs: Mapping[str, Dependency]
    deliveries: tuple[str, ...]
    is_async: bool
    enters: bool
    """True if it returns a context manager, which must be entered."""

    @property
    def key(self) -> Key:
        return (self.provider, self.scope)

    @property
    def name(self) -> str:
        return name_of(self.provider)


def resolve(signature: Signature, what: str) -> dict[str, Dependency]:
    """Return the parameters annotated with `Use`. ``what`` names the function in errors."""
    return _resolve(signature, what, ())


def _resolve(signature: Signature, what: str, above: tuple[Key, ...]) -> dict[str, Dependency]:
    found: dict[str, Dependency] = {}
    for parameter in signature.parameters:
        name = parameter.name
        why = signature.unresolved.get(name, "")
        if "Use(" in why:
            raise DeclarationError(
                f"{what}: the annotation of {name!r} cannot be resolved ({why}). Its names must be "
                "defined in the function's module when it is declared."
            )
        if isinstance(parameter.default, Use):
            raise DeclarationError(
                f"{what}: Use is the default of {name!r}: write {name}: Annotated[…, "
                f"{parameter.default!r}]"
            )
        use = _use(signature.extras.get(name), f"{what}: parameter {name!r}")
        if use is None:
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise DeclarationError(f"{what}: parameter {name!r} must not be positional only")
        found[name] = _dependency(use, above)
    return found


def _use(annotated: Any, where: str) -> Use | None:
    if get_origin(annotated) is not Annotated:
        return None
    uses = [one for one in get_args(annotated)[1:] if isinstance(one, Use) or one is Use]
    if not uses:
        return None
    if len(uses) > 1 or not isinstance(uses[0], Use):
        raise DeclarationError(f"{where}: expected one Use(provider), found {uses}")
    return uses[0]


def _dependency(use: Use, above: tuple[Key, ...]) -> Dependency:
    provider, scope = use.provider, use.scope
    what = f"provider {name_of(provider)}"
    if (provider, scope) in above:
        chain = " → ".join(name_of(one) for one, _scope in (*above, (provider, scope)))
        raise DeclarationError(f"{what} needs itself: {chain}")
    # A class without a signature is called without arguments.
    try:
        signature = signature_of(provider, what)
    except DeclarationError:
        if not isinstance(provider, type):
            raise
        signature = Signature([], {}, {}, {})
    needs = _resolve(signature, what, (*above, (provider, scope)))
    deliveries = [p.name for p in signature.parameters if signature.hints.get(p.name) is Delivery]
    for parameter in signature.parameters:
        _check_parameter(parameter, {*needs, *deliveries}, what)
    if scope == "process":
        if deliveries:
            raise DeclarationError(
                f"{what} has the scope of the process, where there is no Delivery: "
                'write Use(…, scope="delivery")'
            )
        for one in needs.values():
            if one.scope == "delivery":
                raise DeclarationError(
                    f"{what} has the scope of the process and needs {one.name}, which has the "
                    "scope of a delivery and is closed earlier"
                )
    is_async, enters = _kind(provider)
    return Dependency(provider, scope, needs, tuple(deliveries), is_async, enters)


def _check_parameter(parameter: inspect.Parameter, known: set[str], what: str) -> None:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = parameter.name in known or parameter.default is not inspect.Parameter.empty
    if not given and parameter.kind not in optional:
        raise DeclarationError(
            f"{what}: there is no value for parameter {parameter.name!r}. Annotate it with Use, or "
            "give it a default."
        )


def _kind(provider: Callable[..., Any]) -> tuple[bool, bool]:
    """Return two flags: the provider needs an event loop; its return value must be entered."""
    if isinstance(provider, type):
        enters_async = hasattr(provider, "__aenter__")
        return enters_async and not hasattr(provider, "__enter__"), (
            enters_async or hasattr(provider, "__enter__")
        )
    target = function_of(provider)
    inner = inspect.unwrap(target)
    decorated = inner is not target and not _generates(target)
    is_async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
    # A decorated generator: @contextmanager or @asynccontextmanager.
    return is_async, decorated and _generates(inner)


def _generates(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def all_of(needs: Iterable[Dependency], given: Container[Key] = ()) -> Generator[Dependency]:
    """Yield the dependencies ``needs`` and all that they need, each after those that it needs itself. A dependency
    may be repeated. Those in ``given`` are left out."""
    for one in needs:
        if one.key not in given:
            yield from all_of(one.needs.values(), given)
            yield one


def check_scopes(needs: Mapping[str, Dependency], what: str, *, is_async: bool) -> None:
    """Raise `DeclarationError` for a provider of a delivery that cannot be opened in the thread of the handler
    ``what``."""
    for one in all_of(needs.values()):
        if one.scope == "delivery" and one.is_async and not is_async:
            raise DeclarationError(
                f"{what} is not `async def`, so it runs in a thread, where {one.name} cannot be "
                "opened for a delivery: make the handler `async def`, or the provider synchronous"
            )


# --- opening --------------------------------------------------------------------------------------


class Stack(Protocol):
    """Closes the opened values: `contextlib.AsyncExitStack`, or `lifespan.Closing`."""

    async def enter_async_context(self, manager: Any, /) -> Any: ...
    def enter_context(self, manager: Any, /) -> Any: ...


async def open_async(
    one: Dependency, values: Values, stack: Stack, delivery: Delivery | None = None
) -> Any:
    """Open ``one`` and its own dependencies, and return its value. All values are added to ``values``, and
    ``stack`` closes them."""
    if one.key in values:
        return values[one.key]
    for need in one.needs.values():
        await open_async(need, values, stack, delivery)
    made = one.provider(**_arguments(one, values, delivery))
    manager = _manager(one, made)
    if manager is None:
        # An instance of a class is the value, even if it is awaitable.
        waits = inspect.isawaitable(made) and not isinstance(one.provider, type)
        values[one.key] = await made if waits else made
    elif hasattr(manager, "__aenter__"):
        values[one.key] = await stack.enter_async_context(manager)
    else:
        values[one.key] = stack.enter_context(manager)
    return values[one.key]


def open_in_thread(
    one: Dependency, values: Values, stack: ExitStack, delivery: Delivery | None
) -> Any:
    """Do the same as `open_async`, without an event loop."""
    if one.key in values:
        return values[one.key]
    for need in one.needs.values():
        open_in_thread(need, values, stack, delivery)
    made = one.provider(**_arguments(one, values, delivery))
    manager = _manager(one, made)
    if manager is not None:
        values[one.key] = stack.enter_context(manager)
    elif inspect.isawaitable(made) and not isinstance(one.provider, type):
        refuse_awaitable(made)
        raise TypeError(f"{one.name} returned an awaitable, which a thread cannot await")
    else:
        values[one.key] = made
    return values[one.key]


def _manager(one: Dependency, made: Any) -> Any:
    """Return the context manager to enter for a provider's return value; None if it is itself the value."""
    if one.enters:
        return made
    if inspect.isasyncgen(made):
        return asynccontextmanager(lambda: made)()
    if inspect.isgenerator(made):
        return contextmanager(lambda: made)()
    return None


def refuse_awaitable(made: Any) -> None:
    """Close ``made`` if it is a coroutine, which will not be awaited, so that Python does not warn about it."""
    close = getattr(made, "close", None)
    if close is not None:
        close()


def _arguments(one: Dependency, values: Values, delivery: Delivery | None) -> dict[str, Any]:
    return {
        **{name: values[need.key] for name, need in one.needs.items()},
        **dict.fromkeys(one.deliveries, delivery),
    }


# --- a handler's parameters -----------------------------------------------------------------------


class Signature(NamedTuple):
    """Parameters and annotations of a function. ``hints`` are types without ``Annotated``; ``extras`` are the
    same types with it. An annotation that cannot be resolved is only in ``unresolved``, with the reason."""

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
    """Return the signature of ``given``. Raises `DeclarationError` if it does not have one. The error calls
    ``given`` by the name ``what``."""
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
        # One annotation has a name that only a type checker knows. Resolve the others one by one.
        found = _one_by_one(parameters, annotated)
    for name, hint in found.hints.items():
        if get_origin(hint) in (Union, types.UnionType) and Delivery in get_args(hint):
            found.hints[name] = Delivery  # `Delivery | None`: tests may omit the argument
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
