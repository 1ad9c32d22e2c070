"""One worker process: finds the app, runs it, and ends when a signal arrives.

    SIGTERM, SIGINT    stop gracefully within the grace time
    a second signal    hand back entries without waiting for their handlers
    a third signal     end immediately, as in a crash
    its parent died    same as SIGTERM (standard input, a pipe, is at its end)

A handler of SIGTERM or SIGINT that the program has installed itself is called as well.

``headwater work`` starts its worker processes as ``python -m headwater.worker.process.main module:app``. The exit
status is 0 after a stop, `CANNOT_START` for an error in a declaration or at the first join, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeGuard

from headwater.common.durations import milliseconds
from headwater.errors import HeadwaterError
from headwater.worker.app import App
from headwater.worker.observe.logs import LogFormat, LogLevel, configure_logging
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.process.targets import AppBroken, find_app
from headwater.worker.read.quarantine import Suspects
from headwater.worker.run.execute import HandlerOverran
from headwater.worker.run.pool import Slot

CANNOT_START = 78
"""Exit status of a worker that can never start: EX_CONFIG of sysexits.h."""

STOPPING = (signal.SIGTERM, signal.SIGINT)

PROGRESS_SECONDS = 1.0
"""Interval at which a worker reports its progress, in seconds."""

log = logging.getLogger("headwater.worker")


def freeze_program() -> None:
    """Exclude all current objects from Python's garbage collection.

    A full collection then examines only messages. If it also examined the program and its libraries, it would
    stop all handlers for 20 ms or more, every 20,000 messages (docs/adr/0045).
    """
    gc.collect()
    gc.freeze()


async def work(
    app: App, *, until_eof: bool, reports: Reports | None = None, progress: bool = False
) -> None:
    """Run ``app`` until a signal arrives, or until the end of standard input if ``until_eof``. With
    ``progress``, report its progress."""
    loop = asyncio.get_running_loop()
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            log.error(
                "ended at the third signal; running entries stay pending until they are claimed"
            )
            os._exit(1)
        app.stop()

    signals = _Signals(loop, stop)
    if until_eof:
        loop.add_reader(0, _on_input(loop, stop, reports or Reports()))
    reporting = None
    if reports is not None and progress:
        reporting = asyncio.create_task(_report_progress(app, reports), name="progress reports")
    try:
        await app.run(reports=reports)
    finally:
        if reporting is not None:
            reporting.cancel()
        signals.leave_loop()
    _abandon_handlers(signals.status)
    signals.finish()


class _Signals:
    """Handles SIGTERM and SIGINT, and also calls handlers that the program has installed for them, at any time and in
    any way: by `signal.signal` before the worker starts or in ``on_start``, or by the loop's ``add_signal_handler``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._before: dict[int, Any] = {one: signal.getsignal(one) for one in STOPPING}
        self._in_loop: dict[int, Callable[[], object]] = {}
        self._leaving: SystemExit | None = None
        self._add = loop.add_signal_handler
        for number in STOPPING:
            self._add(number, self._arrived, number)
        self._mine: dict[int, Any] = {one: signal.getsignal(one) for one in STOPPING}
        # In a loop that does not allow this (uvloop), the program's handler replaces the worker's.
        with suppress(AttributeError):
            loop.add_signal_handler = self._added  # type: ignore[method-assign,assignment]

    def _added(self, number: int, callback: Callable[..., object], *args: Any) -> None:
        """Keep the program's callback and the worker's. This method replaces the loop's ``add_signal_handler``."""
        if number in STOPPING:
            self._in_loop[number] = partial(callback, *args)
        else:
            self._add(number, callback, *args)

    def _arrived(self, number: int) -> None:
        self._stop()
        if number in self._in_loop:
            self._call(self._in_loop[number])
        before = self._before[number]
        # If a handler was installed later, Python calls it itself.
        if signal.getsignal(number) is self._mine[number] and _of_program(before):
            self._call(partial(before, number, None))

    def _call(self, handler: Callable[[], object]) -> None:
        try:
            handler()
        except SystemExit as leaving:
            self._leaving = leaving  # after the graceful stop
        except BaseException:
            log.exception("the program's own signal handler failed; the worker stops all the same")

    def leave_loop(self) -> None:
        """Handle signals without the loop, which is about to close: asyncio prints a traceback if a signal arrives while
        a loop closes, and the default action would end the process with another status afterwards."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        for number in STOPPING:
            current = signal.getsignal(number)
            self._loop.remove_signal_handler(number)
            if current is self._mine[number]:
                current = self._mine[number] = lambda arrived, _frame: self._arrived(arrived)
            signal.signal(number, current)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    @property
    def status(self) -> int:
        """The exit status that a signal handler of the program requested; otherwise 0."""
        code = None if self._leaving is None else self._leaving.code
        return code if isinstance(code, int) else int(code is not None)

    def finish(self) -> None:
        """End the process with the exit status that a signal handler of the program requested, if one did."""
        if self._leaving is not None:
            raise self._leaving


def _of_program(handler: Any) -> TypeGuard[Callable[..., object]]:
    """Return whether the program has installed this handler, not Python or `asyncio.run`."""
    runners = getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"
    return callable(handler) and handler is not signal.default_int_handler and not runners


async def _report_progress(app: App, reports: Reports) -> None:
    while True:
        statistics = app.statistics()
        for number, found in enumerate(statistics.consumers):
            reports.progress(number, found, loop_delay=statistics.loop_delay)
        await asyncio.sleep(PROGRESS_SECONDS)


def _abandon_handlers(status: int) -> None:
    """End the process here if a handler ignores its cancellation, because closing the loop would wait for it."""
    running = sum(isinstance(task, Slot) for task in asyncio.all_tasks())
    if running:
        words = "1 handler ignores its" if running == 1 else f"{running} handlers ignore their"
        log.error("the worker ends although %s cancellation", words)
        _exit_now(status)


def _on_input(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reports: Reports
) -> Callable[[], None]:
    def read() -> None:
        data = os.read(0, 4096)
        if data:
            reports.heard(data)
        else:
            loop.remove_reader(0)
            log.warning("the parent process has ended: stopping")
            stop()

    return read


def run_worker(options: argparse.Namespace) -> int:
    """Run the app in this process until it is stopped. Return the exit status."""
    try:
        app = find_app(options.target)
        app.suspects = Suspects(options.suspects)
        if options.grace is not None:
            app.grace_ms = milliseconds(options.grace, least_ms=0)
        if options.url is not None:
            app.use_store(options.url)
        if options.concurrency is not None:
            app.use_concurrency(options.concurrency)
        freeze_program()
        told = Reports(options.reports, options.board)
        asyncio.run(work(app, until_eof=True, reports=told, progress=options.progress))
    except SystemExit as leaving:  # raised by the program's own signal handler
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except HeadwaterError as problem:
        log.error("%s", problem)  # noqa: TRY400  # a message for people, without a traceback
        # An error while a module is imported may be temporary, such as that of an unreachable server.
        return 1 if isinstance(problem, AppBroken | HandlerOverran) else CANNOT_START
    except Exception:
        log.exception("the worker ends with an error")
        return 1
    return 0


def leave(status: int) -> None:
    """End the process, even if a handler still runs in a thread, because a thread cannot be stopped."""
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        _exit_now(status)
    sys.exit(status)


def _exit_now(status: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Run a worker process, as a child of ``headwater work``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--grace")
    parser.add_argument("--url")
    parser.add_argument("--suspects", choices=list(Suspects), default=Suspects.HERE)
    parser.add_argument("--reports", type=int)
    parser.add_argument("--board", type=int)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--log-level", type=LogLevel, default=LogLevel.INFO)
    parser.add_argument("--log-format", type=LogFormat, default=LogFormat.TEXT)
    options = parser.parse_args()
    configure_logging(options.log_level, options.log_format)
    leave(run_worker(options))


if __name__ == "__main__":
    main()
