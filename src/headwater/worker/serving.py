"""An app on an embedded store, in several processes: the store is served to them while they work.

A data directory belongs to one process at a time. ``headwater work`` therefore serves it itself,
over a unix socket that only its own user can reach; another process on that directory is told to
use ``headwater serve --dir``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.errors import HeadwaterError
from headwater.worker.process import CANNOT_START, find_app, log
from headwater.worker.supervise import supervise


def supervise_on_its_store(target: str, *, workers: int, grace_ms: int | None) -> int:
    """`supervise`, with the app's store served if it is an embedded one. The exit status."""
    app = find_app(target)
    if not app.consumers:
        raise HeadwaterError(f"{target} has no consumer: nothing to work on")
    if urlsplit(app.url).scheme != "headwater":
        return supervise(target, workers=workers, grace_ms=grace_ms)
    with served(app.url) as url:
        return supervise(target, workers=workers, grace_ms=grace_ms, url=url)


@contextmanager
def served(url: str) -> Iterator[str]:
    """Serve the embedded store that ``url`` names; the address at which it is reached.

    Raises `HeadwaterError` with the server's own words when it does not start.
    """
    parts = urlsplit(url)
    # Short, because a unix socket's path holds at most 107 bytes.
    private = Path(tempfile.mkdtemp(prefix="hw-"))
    socket = private / "store"
    command = [sys.executable, "-m", "headwater.cli.main", "serve", "--bind", "", "--port", "0"]
    command += ["--unixsocket", str(socket), "--unixsocketperm", "700"]
    command += (
        ["--appendonly", "no"] if parts.netloc == "memory" else ["--dir", unquote(parts.path)]
    )
    with (private / "log").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # it ends after the workers, not with the terminal's Ctrl-C
        )
    try:
        assert process.stdout is not None, "it was asked for"
        ready = process.stdout.readline().decode().strip()
        if not ready:
            process.wait()
            said = (private / "log").read_text(errors="replace").strip()
            raise HeadwaterError(f"the store of {url} cannot be served: {said}")
        log.info("%s", ready)
        yield f"unix://{socket}"
    finally:
        process.terminate()
        status = process.wait()
        if status not in (0, CANNOT_START):
            log.error("the store ended with status %d: %s", status, (private / "log").read_text())
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(private, ignore_errors=True)
