"""An app on an embedded store, in several processes: the store is served to them while they work.

A data directory belongs to one process at a time. ``headwater work`` therefore serves it itself,
over a unix socket that only its own user can reach. Apps of that user that publish to the directory
and the command line find the socket (`meeting`); a second ``headwater work`` is asked to use
``headwater serve --dir``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.errors import HeadwaterError
from headwater.uncompiled import notice
from headwater.worker.mending import found_when_mended
from headwater.worker.process import log
from headwater.worker.reload_import import find_app_or_wait
from headwater.worker.source_watch import SourceWatch
from headwater.worker.supervise import supervise
from headwater.worker.targets import find_app


def supervise_on_its_store(
    target: str,
    *,
    workers: int,
    grace_ms: int | None,
    child_options: Sequence[str] = (),
    health: str | None = None,
    reload: bool = False,
) -> int:
    """`supervise`, with the app's store served if it is an embedded one. The exit status."""
    if reload:
        # Python takes a file for unchanged that was changed within a second and is as long.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    app = find_app_or_wait(target) if reload else find_app(target)
    if not app.consumers:
        raise HeadwaterError(f"{target} has no consumer: nothing to work on")
    if uncompiled := notice():
        log.warning(uncompiled)
    grace_ms = app.grace_ms if grace_ms is None else grace_ms
    run = partial(
        supervise,
        target,
        workers=workers,
        grace_ms=grace_ms,
        child_options=child_options,
        health=health,
        watch=SourceWatch(Path.cwd()) if reload else None,
    )
    if urlsplit(app.url).scheme != "headwater":
        return run()
    with served_store(app.url) as store:
        status = run(url=store.url, inherited=[store.lifeline])
        return status or int(store.died)


class ServedStore:
    """A store that a process of its own serves at ``url``.

    Should it die, nothing can be worked on: the process that serves it gets SIGTERM.
    It serves as long as anybody holds ``lifeline``: should this process be killed, its workers hold
    it until they have handed back what they own, and then the directory is free again.
    """

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.url = url
        self.died = False
        assert process.stdin is not None, "it was asked for"
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
        """End it cleanly."""
        self._ending.set()
        self._process.terminate()
        self._process.wait()
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.close()


@contextmanager
def served_store(url: str) -> Iterator[ServedStore]:
    """Serve the embedded store that ``url`` names.

    Raises `HeadwaterError` with the server's own words when it does not start.
    """
    parts = urlsplit(url)
    # Short, because a unix socket's path holds at most 107 bytes.
    private = Path(tempfile.mkdtemp(prefix="hw-"))
    try:
        process = _launch(private, None if parts.netloc == "memory" else unquote(parts.path))
        assert process.stdout is not None, "it was asked for"
        with process.stdout as output:
            ready = output.readline().decode().strip()
        if not ready:
            process.wait()
            said = (private / "log").read_text(errors="replace").strip()
            raise HeadwaterError(
                f"the store of {url} cannot be served to the workers: {said} (To share a directory "
                f"among programs, run `headwater serve --dir {unquote(parts.path)}` and give every "
                "app its address.)"
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
    command = [sys.executable, "-m", "headwater.worker.store_process", str(private / "store")]
    command += [] if directory is None else [directory]
    with (private / "log").open("wb") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # it ends after the workers, not with the terminal's Ctrl-C
        )
