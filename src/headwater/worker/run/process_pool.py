"""Pool processes, which run the handler of a consumer with ``executor="process"``, one message or batch at a time.

    slot ─▶ thread ─▶ ProcessPool.call ──pipe──▶ serve: dependencies, handler
                ◀── result or error ◀──pipe──┘

Rule 1. A process handles one message or batch at a time, so its death is blamed on it alone. A process is started
        when no other is idle, at most one for each slot. The first process is started before the worker reads, so
        that the worker's start fails if the process cannot start or open its dependencies. A start takes a second,
        so the message is given to the process that is idle first, whether new or not.
Rule 2. Processes are started by spawn. Forking a process with threads can deadlock, and a fork server would have to
        import the program, which may start threads.
Rule 3. A process that must end (timeout, stop, lost lease) is told so and gets SIGTERM, which ends its handler by
        SystemExit. After `TERM_SECONDS` it is killed. A SIGTERM or SIGINT from another sender is ignored, because
        the worker decides when handlers end.
Rule 4. A pool process ends when its worker does, for any reason: the kernel kills it (PR_SET_PDEATHSIG). Where the
        kernel does not, the process ends at the end of its pipe.
Rule 5. Only pickles of our own processes are read, from their pipe.
Rule 6. Requests and replies are numbered. A process that sends the reply to another request is killed, and the message
        is handled again as after any death: another process writes to its pipe, such as a child that a handler
        forked in C.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait
from traceback import FrameSummary
from typing import Any

from headwater.errors import DeclarationError
from headwater.messages.dead import REMOTE_TRACE, error_text
from headwater.worker.declare.batches import Batch
from headwater.worker.declare.declaration import POOL_PROCESS, Consumer
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.lifespan import CLOSING_SECONDS, StartFailed
from headwater.worker.declare.outcome import PoolProcessDied, RanTooLong, death
from headwater.worker.observe.logs import configured
from headwater.worker.run.pool_process import (
    END,
    NUMBER,
    SHOW_STACK,
    PooledHandler,
    SentError,
    serve,
)

log = logging.getLogger("headwater.worker")

TERM_SECONDS = 0.5
"""Maximum time for a handler to end after SIGTERM, in seconds."""

REAP_SECONDS = 5.0
"""Maximum wait for the exit status of a process that has ended, in seconds."""

STACK_SECONDS, STACK_BYTES = 0.2, 65_536
"""Maximum wait for the stack of a handler, in seconds, and maximum number of bytes that are read at a time."""

TRIES = 3
"""Number of processes that may end before they begin a message, until this counts as a crash of the message."""

_FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')


class PoolProcess:
    """One pool process. The constructor starts it. Raises `StartFailed`."""

    def __init__(self, name: str, job: bytes) -> None:
        self.handled = 0
        self.closed = threading.Event()
        self._name = name
        try:
            self._start(job)
        except OSError as error:
            raise _not_started(name, error) from error

    def get_ready(self) -> None:
        """Wait until the process can handle messages. Raises `StartFailed`."""
        problem = self._received()
        if problem != b"":
            self.kill()
            why = f"it {death(self._status())}; its output shows why"
            raise StartFailed(
                f"the pool process of {self._name} cannot start: {problem.decode() if problem else why}"
            )

    def _start(self, job: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._stacks, writer = context.Pipe(duplex=False)
        self._begun = context.RawValue("Q", 0)
        """Number of the request whose handler the process began last, in memory that both processes share."""
        self._process = context.Process(
            target=serve, args=(theirs, writer, self._begun, job), name=POOL_PROCESS, daemon=False
        )
        # The process starts with SIGINT blocked, because a Ctrl-C reaches it before it can handle the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with _STARTING:
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            writer.close()
        assert self._process.pid is not None, "it was started"
        self.pid = self._process.pid
        # The sentinel is not used, because a process that a handler forks keeps it open.
        self._life = (
            os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else os.dup(self._process.sentinel)
        )

    @property
    def alive(self) -> bool:
        return not wait([self._life], 0)

    def ask(self, payload: bytes, timeout: float | None) -> memoryview | None:
        """Return the reply to a request; None if the process ended before it began the handler. Raises
        `PoolProcessDied`, and `RanTooLong` after ``timeout`` seconds."""
        self.handled += 1
        try:
            self._connection.send_bytes(NUMBER.pack(self.handled) + payload)
        except OSError:
            return None
        reply = self._received(timeout)
        if reply is not None:
            (number,) = NUMBER.unpack_from(reply)
            if number == self.handled:
                return memoryview(reply)[NUMBER.size :]
            log.error(
                "a pool process of %s sent the reply to request %d instead of %d, so it is killed: "
                "a child that its handler has forked uses its pipe",
                self._name,
                number,
                self.handled,
            )
            self.abort()
        if self._begun.value == self.handled:
            raise PoolProcessDied(self._status())
        return None

    def _received(self, timeout: float | None = None) -> bytes | None:
        """Return the next message of the process; None if it has ended. Raises `RanTooLong`."""
        found = wait([self._connection, self._life], timeout)
        if not found:
            raise RanTooLong(f"it ran longer than {timeout:g} s, and its process was ended")
        if self._connection not in found:
            return None
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            return None

    def _status(self) -> int | None:
        """Return the exit status, negative for a signal; None if it is unknown."""
        end = time.monotonic() + REAP_SECONDS
        while (status := self._process.exitcode) is None and time.monotonic() < end:
            time.sleep(0.01)
        return status

    def stop(self) -> None:
        """Make the handler end, if one runs, and then the process. Kill the process after `TERM_SECONDS`."""
        self.finish()
        self._signal(signal.SIGTERM)
        # The slot's thread waits for a reply, and a handler in a long call into C does not notice SIGTERM.
        later = threading.Timer(TERM_SECONDS, self._signal, [signal.SIGKILL])
        later.daemon = True
        later.start()

    def kill(self, after: float = 0.0) -> None:
        """Kill the process, unless it ends within ``after`` seconds."""
        if not wait([self._life], after):
            self._signal(signal.SIGKILL)
        self._status()
        self.close()

    def abort(self) -> None:
        """Kill the process. The thread that started the process closes its pipes."""
        self._signal(signal.SIGKILL)

    def finish(self) -> None:
        """Let an idle process close its dependencies and end."""
        with suppress(OSError):
            self._connection.send_bytes(END)

    def close(self) -> None:
        """Close the pipes and descriptors of a process that has ended."""
        self._connection.close()
        self._stacks.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        self.closed.set()

    def _signal(self, number: int) -> None:
        if self._process.exitcode is None:  # its id cannot belong to another process yet
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stack(self) -> list[FrameSummary]:
        """Return the stack of the handler, outermost frame first, even while it holds the interpreter's lock."""
        text, patience = b"", STACK_SECONDS
        with suppress(OSError):  # the process may have ended
            while self._stacks.poll():
                os.read(self._stacks.fileno(), STACK_BYTES)  # the late answer to an earlier request
            self._signal(SHOW_STACK)
            while self._stacks.poll(patience) and len(text) < STACK_BYTES:
                text += os.read(self._stacks.fileno(), STACK_BYTES)
                patience = 0.01  # the stack is written in pieces
        found = _FRAME.findall(text.decode(errors="replace"))
        return [FrameSummary(file, int(line), name) for file, line, name in reversed(found)]


_STARTING = threading.Lock()


class ProcessPool:
    """The pool processes of one consumer. ``returns`` is true if middleware needs the handler's results.

    Raises `DeclarationError` for a handler that another process cannot find.
    """

    def __init__(self, consumer: Consumer, *, returns: bool) -> None:
        self._name = consumer.name
        self._timeout_s = None if consumer.timeout_ms is None else consumer.timeout_ms / 1000
        self._recycle = consumer.recycle
        self._plain = consumer.plain is not None  # the handler does not need the delivery
        into = consumer.into
        job = PooledHandler(
            consumer.handler,
            consumer.batch is not None,
            None if into is None else (into.name, into.type, into.codec.name),
            returns or into is not None,
            configured(),
        )
        self._job = _packed_job(job, consumer)
        self._lock = threading.Condition()
        """Notified when a process is idle, a start has failed, or a delivery has ended."""
        self._starting = self._waiting = 0
        """Number of processes that are being started, and of calls that wait for a process."""
        self._new: set[PoolProcess] = set()
        """Processes that are being started and already run."""
        self._failed: list[BaseException] = []
        self._idle: list[PoolProcess] = []
        self._runs: dict[Delivery, PoolProcess | None] = {}
        """Deliveries in progress → the process of each; None until it has one."""
        self._closed = False

    def prepare(self) -> None:
        """Start the first process. Raises `StartFailed`."""
        with self._lock:
            self._idle.append(self._wait_for_idle(None))

    def begin(self, delivery: Delivery) -> None:
        """Expect the call of the handler for a delivery."""
        self._runs[delivery] = None

    def end(self, delivery: Delivery) -> None:
        """End a delivery. If its handler still runs, end its process."""
        with self._lock:
            process = self._runs.pop(delivery, None)
            self._lock.notify_all()
        if process is not None:
            process.stop()

    def stack(self, delivery: Delivery) -> list[FrameSummary]:
        """Return the current stack of a delivery's handler, outermost frame first."""
        process = self._runs.get(delivery)
        return [] if process is None else process.stack()

    def call(self, message: Any, delivery: Delivery) -> Any:
        """Call the handler in a process, and return its result or raise its error. Blocks the thread of the slot."""
        payload = self._packed(message, delivery)
        for _ in range(TRIES):
            reply = self._ask(payload, delivery)
            if reply is not None:
                return self._result(message, reply)
        raise PoolProcessDied(None)

    def _ask(self, payload: bytes, delivery: Delivery) -> memoryview | None:
        process = self._take(delivery)
        reply = None
        try:
            reply = process.ask(payload, self._timeout_s)
        except RanTooLong:
            process.stop()
            raise
        finally:
            with self._lock:
                wanted = self._runs.get(delivery) is process
                if wanted:
                    self._runs[delivery] = None
            if reply is not None and wanted:
                self._leave(process)
            else:
                process.kill(TERM_SECONDS)
        return reply

    def _take(self, delivery: Delivery) -> PoolProcess:
        """Return an idle process, or the first that becomes idle. A new process is started, but another may be
        faster. Raises `StartFailed`."""
        while True:
            with self._lock:
                process = self._wait_for_idle(delivery)
                if process.alive:
                    self._runs[delivery] = process
                    return process
            log.warning("an idle pool process of %s has ended", self._name)
            process.kill()

    def _wait_for_idle(self, delivery: Delivery | None) -> PoolProcess:
        """Wait until a process is idle, and return it. The caller must hold the lock."""
        self._waiting += 1
        try:
            while True:
                if self._closed or (delivery is not None and delivery not in self._runs):
                    raise PoolProcessDied(None)  # the delivery has ended, so this error is dropped
                if self._idle:
                    return self._idle.pop()
                if self._failed:
                    raise self._failed.pop()
                if self._starting < self._waiting:
                    self._begin_to_start()
                self._lock.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                for failed in self._failed:
                    log.warning("%s", failed)  # the waiting calls got another process
                self._failed.clear()

    def _begin_to_start(self) -> None:
        try:
            threading.Thread(target=self._start, daemon=True).start()
        except RuntimeError as error:
            raise _not_started(self._name, error) from error
        self._starting += 1

    def _start(self) -> None:
        """Start a process for a call that waits, in a thread that lives as long as the process. The kernel kills a
        process when the thread that started it ends (PR_SET_PDEATHSIG)."""
        process: PoolProcess | None = None
        failed: BaseException | None = None
        try:
            process = PoolProcess(self._name, self._job)
            with self._lock:
                self._new.add(process)
                if self._closed:
                    process.abort()
            process.get_ready()
        except BaseException as error:
            failed = error
        with self._lock:
            self._starting -= 1
            if process is not None:
                self._new.discard(process)
            if failed is None and process is not None:
                self._leave(process)
            elif failed is not None and self._waiting:
                self._failed.append(failed)
                self._lock.notify_all()
            elif not self._closed:
                log.warning("%s", failed)  # no call needs the process any more
        if process is not None:
            process.closed.wait()

    def _leave(self, process: PoolProcess) -> None:
        """Make a process idle, or end it."""
        with self._lock:
            worn = self._recycle is not None and process.handled >= self._recycle
            if not self._closed and not worn:
                self._idle.append(process)
                self._lock.notify()
                return
        process.finish()
        # A separate thread does this, because the result must not wait until dependencies are closed.
        threading.Thread(target=process.kill, args=(CLOSING_SECONDS,), daemon=True).start()

    def _packed(self, message: Any, delivery: Delivery) -> bytes:
        """Return the request for a process. Raises `TypeError` for a message that cannot be pickled."""
        sent: tuple[Any, Any, bool] = (message, None if self._plain else delivery, False)
        if isinstance(message, Batch):
            sent = (message.items, message.deliveries, True)
        try:
            return pickle.dumps(sent, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise TypeError(
                f"the message cannot be sent to a pool process of {self._name}, because it cannot be pickled: "
                f"{error_text(error)}"
            ) from error

    def _result(self, message: Any, reply: memoryview) -> Any:
        try:
            result, error, said = pickle.loads(reply)  # noqa: S301  # of our own process
        except Exception as problem:
            raise TypeError(
                f"what {self._name} returned or raised in its pool process cannot be unpickled here: "
                f"{error_text(problem)}"
            ) from problem
        if said:
            message.take({index: _received_error(one) for index, one in said.items()})
        if error is not None:
            raise _received_error(error)
        return result

    def close(self) -> None:
        """End all processes, after idle ones have closed their dependencies. Blocks."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            for process in self._new:
                process.abort()  # the worker's exit would wait for this process
            idle, self._idle = self._idle, []
            busy = [one for one in self._runs.values() if one is not None]
        for process in idle:
            process.finish()
        for process in busy:
            process.stop()  # the thread that started it waits for its end
        end = time.monotonic() + CLOSING_SECONDS
        for process in idle:
            process.kill(max(0.0, end - time.monotonic()))


def _not_started(name: str, error: Exception) -> StartFailed:
    return StartFailed(f"the pool process of {name} cannot be started: {error}")


def _packed_job(job: PooledHandler, consumer: Consumer) -> bytes:
    main = sys.modules["__main__"]
    interactive = getattr(main, "__file__", None) is None
    if job.handler.__module__ == "__main__" and interactive:
        raise DeclarationError(
            f'{consumer.name} with executor="process" is declared in a session or a notebook, which a pool process '
            "cannot import: put it into a module"
        )
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise DeclarationError(
            f'{consumer.name} with executor="process": a pool process cannot find it, or the type of its results '
            f"({error_text(error)}). Define both at the top of a module, and make @app.consumer the outermost "
            "decorator."
        ) from error


def _received_error(sent: SentError) -> BaseException:
    """Return an exception that a pool process has sent, or one of the same name and text if it cannot be pickled."""
    error: BaseException | None = None
    if sent.pickled is not None:
        with suppress(Exception):
            error = pickle.loads(sent.pickled)  # noqa: S301  # of our own process
    if error is None:
        error = type(sent.name, (Exception,), {"__module__": sent.module})(sent.text)
    if sent.trace:
        setattr(error, REMOTE_TRACE, sent.trace)
        error.add_note(f"In its pool process:\n{sent.trace}")
    return error
