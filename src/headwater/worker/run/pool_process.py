"""The program of a pool process (`process_pool`): opens dependencies, and calls the handler for each request.

Rule 1. Before a handler begins, the number of its request is written to memory that the worker reads. A death after
        this write is blamed on this handler.
Rule 2. A reply carries the number of its request, so that it is never taken for the reply to another one. The child of
        a fork in a handler sends none: it ends (`forked`).
Rule 3. An error is sent as its type, text and stack, and also as a pickle if that can be read back.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import logging
import multiprocessing
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from headwater.messages.dead import error_text, trace_text
from headwater.worker.declare.batches import Batch
from headwater.worker.declare.dependencies import Values, all_of, open_in_thread, refuse_awaitable
from headwater.worker.declare.handlers import bind
from headwater.worker.declare.lifespan import StartFailed
from headwater.worker.declare.stream import Stream
from headwater.worker.observe.logs import configure_logging, enable_loggers
from headwater.worker.run.forked import ForkedChildren
from headwater.worker.run.invoke import SyncCall
from headwater.worker.settle.results import Results

SHOW_STACK = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
"""The signal on which a pool process writes its stack."""

END = b""
"""The message after which a pool process ends."""

NUMBER = struct.Struct("=Q")
"""The number of a request, the first is 1. Each request and each reply begins with it."""


class PooledHandler(NamedTuple):
    """The handler that a pool process runs."""

    handler: Callable[..., Any]
    in_batches: bool
    into: tuple[str, Any, str] | None
    """The name, type and codec of the stream for results; None without one."""
    returns: bool
    """True if the worker needs the result."""
    log: tuple[Any, Any] | None
    """The log's level and format; None if `headwater work` has not configured it."""


class SentError(NamedTuple):
    """An exception on its way between processes. ``pickled`` is None if it cannot be pickled and read back."""

    pickled: bytes | None
    module: str
    name: str
    text: str
    trace: str


class Reply(NamedTuple):
    """The end of a handler's run. ``said`` are the outcomes that a batch handler set for items, by index."""

    result: Any
    error: SentError | None
    said: dict[int, SentError]


class _Life:
    """The state of this process: whether it must end, and whether its handler runs."""

    def __init__(self, connection: Connection, begun: Any) -> None:
        self._connection = connection
        self._begun = begun
        self.received = 0
        self.running = False
        self.ending = False
        self.forked = ForkedChildren()

    def begin(self) -> None:
        """Record that a handler begins. From here on, a death of this process is blamed on it."""
        self.running = True
        self._begun.value = self.received

    def terminate(self, *_: object) -> None:
        """Handle SIGTERM: end the handler if the worker requests it or has ended."""
        if self._connection.poll():
            self.ending = True
            if self.running:
                self.running = False
                raise SystemExit


def serve(connection: Connection, stacks: Connection, begun: Any, job: bytes) -> None:
    """Run a pool process: handle requests one after another until the worker tells it to end."""
    life = _Life(connection, begun)
    _settle_in(life, (connection, stacks))
    with ExitStack() as stack:
        try:
            with life.forked:
                call, returns = _opened(pickle.loads(job), stack)  # noqa: S301  # of our own process
        except BaseException as error:
            logging.getLogger("headwater.worker").debug("the start failed", exc_info=error)
            connection.send_bytes(error_text(error).encode("utf-8", "backslashreplace"))
            return
        with suppress(OSError):
            connection.send_bytes(b"")
        while not life.ending:
            try:
                request = connection.recv_bytes()
            except (EOFError, OSError):
                return  # the worker has ended
            if request == END:
                return
            (life.received,) = NUMBER.unpack_from(request)
            sent = memoryview(request)[NUMBER.size :]
            reply = _answer(call, sent, life, returns=returns)
            with suppress(OSError):
                connection.send_bytes(request[: NUMBER.size] + reply)


def _settle_in(life: _Life, pipes: Sequence[Connection]) -> None:
    """Handle signals, end with the worker, and keep descriptors from programs that handlers start."""
    _end_with_worker()
    for pipe in pipes:
        os.set_inheritable(pipe.fileno(), False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # handlers must not read the worker's standard input
    os.close(null)
    faulthandler.register(SHOW_STACK, file=pipes[1].fileno(), all_threads=False)
    # This is a function, because programs that handlers start would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, life.terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_worker() -> None:
    """Make the kernel kill this process when its worker ends. Source: prctl(2)."""
    parent = multiprocessing.parent_process()
    if sys.platform != "linux" or parent is None:
        return
    ctypes = importlib.import_module("ctypes")
    with suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent.pid:
        os._exit(1)  # the worker ended before the call to prctl


def _opened(job: PooledHandler, stack: ExitStack) -> tuple[Callable[[Any, Any], Any], bool]:
    """Open the dependencies. Return a function that calls the handler, and whether the worker needs its result."""
    if job.log is not None:
        configure_logging(*job.log)
    bound = bind(job.handler, Any, has_results=False, in_batches=job.in_batches)
    into: Stream[Any] | None = None
    if job.into is not None:
        name, kind, codec = job.into
        into = Stream(name, kind, codec=codec)
    values: Values = {}
    for one in all_of(bound.needs.values()):
        if one.scope == "process":
            try:
                open_in_thread(one, values, stack, None)
            except BaseException as error:
                raise StartFailed(f"{one.name} failed: {error_text(error)}") from error
    enable_loggers()  # the app's module or a dependency may have configured logging
    check = Results(into, bound.name).additions
    return SyncCall(bound.call, bound.needs, bound.name, values=values, check=check), job.returns


def _answer(
    call: Callable[[Any, Any], Any], request: memoryview, life: _Life, *, returns: bool
) -> bytes:
    """Call the handler, and return the reply for the worker as a pickle."""
    result: Any = None
    error: BaseException | None = None
    batch: Batch[Any] | None = None
    try:
        message, delivery, whole = pickle.loads(request)  # noqa: S301  # of our own process
        if whole:
            message = batch = Batch(message, delivery)
            delivery = delivery[0]
        life.begin()
        with life.forked:
            result = call(message, delivery)
        life.running = False
        _check_result(result)
    except BaseException as raised:
        error = raised
    life.running = False
    said = {} if batch is None else {i: _sent(one.error) for i, one in batch.close().items()}
    if error is None and returns:
        try:
            return pickle.dumps(Reply(result, None, said), pickle.HIGHEST_PROTOCOL)
        except Exception as problem:
            error = TypeError(
                f"the result of type {type(result).__name__} cannot be sent to the worker, because it cannot be "
                f"pickled: {error_text(problem)}"
            )
    return pickle.dumps(Reply(None, None if error is None else _sent(error), said))


def _check_result(result: Any) -> None:
    if inspect.isawaitable(result):
        refuse_awaitable(result)
        raise TypeError("the handler returned an awaitable, which a pool process cannot await")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler returned a generator, which is never run: return a value")


def _sent(error: BaseException) -> SentError:
    pickled: bytes | None = None
    with suppress(Exception):
        found = pickle.dumps(error)
        if type(pickle.loads(found)) is type(error):  # noqa: S301  # made by the line above
            pickled = found
    kind = type(error)
    try:
        text = str(error)
    except Exception as problem:
        text = f"(its __str__ raised {type(problem).__name__})"
    return SentError(pickled, kind.__module__, kind.__qualname__, text, trace_text(error))
