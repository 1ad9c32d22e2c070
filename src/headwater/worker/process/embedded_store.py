"""Serves an embedded store to the worker processes of ``headwater work``.

Only one process at a time can open a data directory. So ``headwater work`` starts a process that serves it
(`store_process`), over a unix socket that only its user can reach. The command line, and apps of that user that
publish to the directory, find the socket (`socket_file`). A second ``headwater work`` is told to use
``headwater serve --dir``.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headwater.errors import HeadwaterError
from headwater.messages.dead import error_text
from headwater.uncompiled import notice
from headwater.worker.app import App
from headwater.worker.process.main import log
from headwater.worker.process.source_watch import SourceWatch, is_source
from headwater.worker.process.supervise import Supervisor
from headwater.worker.process.targets import find_app


def supervise_on_its_store(
    target: str,
    *,
    workers: int,
    grace_ms: int | None,
    child_options: Sequence[str] = (),
    health: str | None = None,
    reload: bool = False,
) -> int:
    """Run a `Supervisor`, and serve the app's store meanwhile if it is embedded. Return the exit status."""
    if reload:
        # With bytecode files, Python does not notice a change within a second that keeps the file's size.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    app = find_app_or_wait(target) if reload else find_app(target)
    if not app.consumers:
        raise HeadwaterError(f"{target} has no consumer: declare one with @app.consumer")
    if uncompiled := notice():
        log.warning(uncompiled)
    supervisor = partial(
        Supervisor,
        target,
        workers=workers,
        grace_ms=app.grace_ms if grace_ms is None else grace_ms,
        child_options=child_options,
        health=health,
        watch=SourceWatch(Path.cwd()) if reload else None,
    )
    if urlsplit(app.url).scheme != "headwater":
        return asyncio.run(supervisor().run())
    with served_store(app.url) as store:
        status = asyncio.run(supervisor(url=store.url, inherited=[store.lifeline]).run())
        return status or int(store.died)


class ServedStore:
    """A store that another process serves at ``url``.

    If the serving process dies, the workers cannot continue, so this process sends itself SIGTERM. The serving
    process runs until ``lifeline`` is closed in all processes. If this process is killed, its workers keep
    ``lifeline`` open until they have handed back their entries. Then the directory can be opened again.
    """

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.url = url
        self.died = False
        assert process.stdin is not None, "it is a pipe"
        self.lifeline = process.stdin.fileno()
        self._process = process
        self._ending = threading.Event()
        threading.Thread(target=self._watch, name="headwater-store", daemon=True).start()

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._ending.is_set():
            self.died = True
            log.error("the store ended with status %d: the workers stop", status)
            os.kill(os.getpid(), signal.SIGTERM)

    def end(self) -> None:
        """Stop the process and wait for it."""
        self._ending.set()
        self._process.terminate()
        self._process.wait()
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.close()


@contextmanager
def served_store(url: str) -> Iterator[ServedStore]:
    """Serve the embedded store of ``url`` while the context lasts.

    Raises `HeadwaterError`, with the server's own error, if the server does not start.
    """
    parts = urlsplit(url)
    # The name is short, because the path of a unix socket has at most 107 bytes.
    private = Path(tempfile.mkdtemp(prefix="hw-"))
    try:
        process = _launch(private, None if parts.netloc == "memory" else unquote(parts.path))
        assert process.stdout is not None, "it is a pipe"
        with process.stdout as output:
            ready = output.readline().decode().strip()
        if not ready:
            process.wait()
            said = (private / "log").read_text(errors="replace").strip()
            shared = (
                f"--dir {unquote(parts.path)}"
                if parts.netloc != "memory"
                else "--appendonly no --save ''"
            )
            raise HeadwaterError(
                f"the store of {url} cannot be served to the workers: {said} (To share a store between programs, "
                f"run `headwater serve {shared}` and use its address in every app.)"
            )
        log.info("%s", ready)
        store = ServedStore(process, f"unix://{private / 'store'}")
        try:
            yield store
        finally:
            store.end()
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _launch(private: Path, directory: str | None) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "headwater.worker.process.store_process",
        str(private / "store"),
    ]
    command += [] if directory is None else [directory]
    with (private / "log").open("wb") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # the process must outlive the workers, so Ctrl-C must not reach it
        )


# --- --reload of an app that cannot be imported ---------------------------------------------------
#
# The command waits for a change only after an error in the app's code. With a wrong MODULE:APP it fails, as it
# does without ``--reload``. Each attempt imports all modules of the app again.


LOOK_SECONDS = 0.2
"""Interval at which source files are checked, in seconds."""


class Fault(NamedTuple):
    """An error, and the place in the app's code where it was raised."""

    file: str
    line: int
    text: str


def find_app_or_wait(target: str) -> App:
    """Return the app as `find_app` does. While the app's code raises an error, log it and wait for a change."""
    while True:
        before = set(sys.modules)
        watch = SourceWatch(Path.cwd())
        try:
            return find_app(target)
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
        watch.add(fault.file)
        log.error(
            "%s cannot start: %s, line %d: %s; waiting for a source file to change",
            target,
            fault.file,
            fault.line,
            fault.text,
        )
        _wait_for_change(watch)
        _forget(set(sys.modules) - before)


def _wait_for_change(watch: SourceWatch) -> None:
    while not (changed := watch.changed()):
        time.sleep(LOOK_SECONDS)
    log.info("%s changed: starting", changed[0])


def fault_of(error: Exception) -> Fault | None:
    """Return the innermost line of the app's source code in the error's traceback, or the line of a syntax error;
    None if there is neither. Errors of `find_app` have the app's error as their cause."""
    if isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Fault(error.filename, error.lineno or 0, f"{type(error).__name__}: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if is_source(frame.filename):
            return Fault(frame.filename, frame.lineno or 0, error_text(error))
    return None


def _forget(modules: Iterable[str]) -> None:
    """Remove the app's modules among ``modules`` from ``sys.modules``, so that they are imported again."""
    for name in modules:
        if is_source(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
    importlib.invalidate_caches()
