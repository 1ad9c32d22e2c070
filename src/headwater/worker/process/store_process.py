"""The process that serves an embedded store to the workers of ``headwater work``.

Run as ``python -m headwater.worker.process.store_process SOCKET [DIRECTORY]``. Without a directory, nothing is stored
on disk. It prints one line when it is ready.

Rule. This process ends at the end of its standard input, a pipe. The pipe ends when ``headwater work`` and
all its workers have ended. Without this rule, the directory would stay locked.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from headwater.config.loading import load
from headwater.errors import HeadwaterError
from headwater.server.log import configure_logging
from headwater.server.running import run
from headwater.worker.store.socket_file import announce, withdraw


def main(socket: str, directory: str | None = None) -> int:
    """Serve until SIGTERM, or until the end of standard input. Return the exit status."""
    kept = [("appendonly", "no"), ("save", "")] if directory is None else [("dir", directory)]
    flags = [("bind", ""), ("port", "0"), ("unixsocket", socket), ("unixsocketperm", "700"), *kept]

    def ready(line: str) -> None:
        if directory is not None:
            announce(directory, socket)
        # The thread starts only now, because from here on SIGTERM is handled as a clean stop.
        threading.Thread(target=_end_with_input, name="headwater-lifeline", daemon=True).start()
        print(line, flush=True)  # noqa: T201  # the process that started it waits for this

    try:
        settings = load(flags=flags)
        configure_logging(settings.located())
        try:
            return run(settings, on_ready=ready)
        finally:
            if directory is not None:
                withdraw(directory, socket)
    except HeadwaterError as problem:
        print(problem, file=sys.stderr)  # noqa: T201  # the parent reports it
        return 1


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
