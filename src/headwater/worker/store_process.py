"""The store that ``headwater work`` serves to its workers, as a process of its own.

``python -m headwater.worker.store_process SOCKET [DIRECTORY]``; without a directory nothing is kept. Its one
line on standard output says that it is ready.

Rule. It ends when its standard input, a pipe, does: nobody is left then who would end it, and a
store that stayed would hold its directory for ever.
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
from headwater.worker.socket_file import announce, withdraw


def main(socket: str, directory: str | None = None) -> int:
    """Serve until SIGTERM, or until standard input is at its end; the exit status."""
    kept = [("appendonly", "no")] if directory is None else [("dir", directory)]
    flags = [("bind", ""), ("port", "0"), ("unixsocket", socket), ("unixsocketperm", "700"), *kept]

    def ready(line: str) -> None:
        if directory is not None:
            announce(directory, socket)
        # Not before: from now on SIGTERM is an end in order.
        threading.Thread(target=_end_with_input, name="headwater-lifeline", daemon=True).start()
        print(line, flush=True)  # noqa: T201  # the process that started it waits for this

    try:
        settings = load(flags=flags)
        configure_logging(settings)
        try:
            return run(settings, on_ready=ready)
        finally:
            if directory is not None:
                withdraw(directory, socket)
    except HeadwaterError as problem:
        print(problem, file=sys.stderr)  # noqa: T201  # the parent passes it on
        return 1


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
