"""The dependencies of a worker process, and the functions that an app runs at start and stop.

    open dependencies ──▶ on_start ──▶ (the consumers run) ──▶ on_stop ──▶ close dependencies
    each after its needs   as declared                         reversed       reversed

Rule 1. No entry is read before all dependencies are open and ``on_start`` has run. If a dependency or function
        fails, the open ones are closed, ``on_stop`` does not run, and the worker ends with an error that names it.
Rule 2. All of this runs in one task, so that cancel scopes and task groups may stay open from start to stop.
Rule 3. The time for closing is limited. An error in closing one dependency is logged, and the others are closed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from headwater.errors import DeclarationError, HeadwaterError
from headwater.messages.dead import error_text
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.dependencies import (
    Dependency,
    Values,
    all_of,
    name_of,
    open_async,
    resolve,
    signature_of,
)
from headwater.worker.store.waiting import CANCELLATIONS, cancelled

log = logging.getLogger("headwater.worker")

CLOSING_SECONDS = 10.0
"""Maximum time for running ``on_stop`` and closing the dependencies, in seconds."""

SLOW_SECONDS = 10.0
"""Seconds after which a warning names the hook or dependency that the start waits for."""

HURRIED_SECONDS = 1.0
"""Maximum time for ``on_stop`` and closing after a second signal, and then after each cancellation, in seconds."""


class StartFailed(Exception):
    """A dependency could not be opened, a function of `App.on_start` failed, or a pool process could not start, so
    the worker ends. ``headwater work`` restarts it."""


class Hook(NamedTuple):
    """A function that an app runs once, with its dependencies."""

    function: Callable[..., Any]
    needs: Mapping[str, Dependency]

    @property
    def name(self) -> str:
        return name_of(self.function)

    async def run(self, values: Values) -> None:
        done = self.function(**{name: values[need.key] for name, need in self.needs.items()})
        if inspect.isawaitable(done):
            await done


def hook(function: Callable[..., Any], what: str) -> Hook:
    """Return the hook for a declared function. ``what`` is the decorator's name, for errors."""
    named = f"{what} function {name_of(function)}"
    signature = signature_of(function, named)
    needs = resolve(signature, named)
    for one in signature.parameters:
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if one.name in needs or one.kind in optional:
            continue
        if one.default is inspect.Parameter.empty:
            raise DeclarationError(
                f"{named}: there is no value for parameter {one.name!r}. Annotate it with Use, or "
                "give it a default."
            )
    for need in needs.values():
        if need.scope == "delivery":
            raise DeclarationError(
                f"{named} needs {need.name}, which has the scope of a delivery: "
                'write Use(…, scope="process")'
            )
    return Hook(function, needs)


class Hooks:
    """The functions that an app runs at the start and the stop of its worker."""

    def __init__(self) -> None:
        self.on_start: list[Hook] = []
        self.on_stop: list[Hook] = []


class Closing:
    """The open context managers. All are closed, in reverse order, even if one fails."""

    def __init__(self) -> None:
        self.name = ""
        """The name of the dependency that is being opened, for the log."""
        self._open: list[tuple[str, Any]] = []

    async def enter_async_context(self, manager: Any) -> Any:
        value = await manager.__aenter__()
        self._open.append((self.name, manager))
        return value

    def enter_context(self, manager: Any) -> Any:
        value = manager.__enter__()
        self._open.append((self.name, manager))
        return value

    async def close(self) -> None:
        """Close all context managers. A cancellation interrupts only the one being closed."""
        while self._open:
            name, manager = self._open.pop()
            with logged(f"closing {name}"):
                if hasattr(manager, "__aenter__"):
                    await manager.__aexit__(None, None, None)
                else:
                    manager.__exit__(None, None, None)


@contextmanager
def logged(what: str) -> Iterator[None]:
    """Log and suppress an error of the block; ``what`` names the block."""
    try:
        yield
    except asyncio.CancelledError:
        log.error("%s was cancelled", what)  # noqa: TRY400  # the traceback would not help
    except BaseException:
        log.exception("%s failed", what)


class Lifespan:
    """Opens and closes the dependencies of a process once. ``values`` are the open ones.

    ``given`` maps providers to values that a test uses instead of the providers' own.
    """

    def __init__(
        self, consumers: Iterable[Consumer], hooks: Hooks, given: Mapping[Any, Any] | None = None
    ) -> None:
        self.values: Values = {}
        self._hooks = hooks
        mine = [one.needs for one in (*hooks.on_start, *hooks.on_stop)]
        needs = [one for each in (*(c.needs for c in consumers), *mine) for one in each.values()]
        self._give(needs, given or {})
        self._needs = [one for one in all_of(needs, self.values) if one.scope == "process"]
        self._closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """The task that opens and closes, from `open` to `close`."""

    def _give(self, needs: Sequence[Dependency], given: Mapping[Any, Any]) -> None:
        """Use the values that a test gives, instead of opening them."""
        known = {one.key: one for one in all_of(needs)}
        for provider, value in given.items():
            keys = [key for key in known if key[0] == provider]
            if not keys:
                raise HeadwaterError(f"nothing needs {name_of(provider)}: it cannot be replaced")
            self.values.update(dict.fromkeys(keys, value))

    async def open(self) -> None:
        """Open all dependencies and run ``on_start``. Raises `StartFailed`, which names the part that failed."""
        if not self._needs and not self._hooks.on_start and not self._hooks.on_stop:
            return
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = task = asyncio.create_task(self._live(opened), name="headwater lifespan")
        try:
            await asyncio.wait([opened, task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING_SECONDS)
            if task.done() and not task.cancelled() and (error := task.exception()):
                log.error("the start was interrupted: %s", error)  # noqa: TRY400  # not this one
            raise
        if task.done():
            self.task = None
            task.result()

    async def close(self, at_once: asyncio.Event) -> None:
        """Run ``on_stop`` and close the dependencies, within `CLOSING_SECONDS`, or sooner if ``at_once`` is
        set."""
        task, self.task = self.task, None
        if task is None:
            return
        self._closing.set()
        hurried = asyncio.ensure_future(at_once.wait())
        try:
            await asyncio.wait(
                [task, hurried], timeout=CLOSING_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            hurried.cancel()
        if at_once.is_set():
            await asyncio.wait([task], timeout=HURRIED_SECONDS)
        for _ in range(CANCELLATIONS):
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=HURRIED_SECONDS)
        if not task.done():
            log.error("on_stop or closing a dependency ignores its cancellation and is abandoned")

    async def _live(self, opened: asyncio.Future[None]) -> None:
        closing = Closing()
        try:
            for one in self._needs:
                closing.name = one.name
                await _begin(one.name, open_async(one, self.values, closing))
            for each in self._hooks.on_start:
                await _begin(f"on_start function {each.name}", each.run(self.values))
            opened.set_result(None)
            await self._closing.wait()
            for each in reversed(self._hooks.on_stop):
                with logged(f"on_stop function {each.name}"):
                    await each.run(self.values)
        finally:
            await closing.close()
            self.values.clear()


async def _begin(name: str, work: Coroutine[Any, Any, Any]) -> None:
    """Wait for ``work``. Its errors are raised as `StartFailed`, except `DeclarationError`."""
    loop = asyncio.get_running_loop()
    slow = loop.call_later(
        SLOW_SECONDS,
        lambda: log.warning(
            "%s has taken %g s to start: the worker does not read before it is done",
            name,
            SLOW_SECONDS,
        ),
    )
    try:
        await work
    except DeclarationError:
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and cancelled():
            raise
        raise StartFailed(f"{name} failed at the start: {error_text(error)}") from error
    finally:
        slow.cancel()
