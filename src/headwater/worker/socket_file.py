"""Where a data directory is served: a file in the directory that names the unix socket.

A directory belongs to one process at a time. While ``headwater work`` serves one to its workers,
other processes that publish to it or look into it find the socket here.

Rule. The file may be left over from a server that was killed, so it counts only while its socket
takes connections. Only the process that holds the directory's lock writes or removes it.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

log = logging.getLogger("headwater.worker")

NAME = "served-at"

CONNECT_SECONDS = 5.0
"""How long a server whose queue of connections is full may take to accept one."""


def announce(directory: str, path: str) -> None:
    """Say that the store in ``directory`` is served at the unix socket ``path``.

    A directory that takes no file is logged: the workers know the socket without it.
    """
    file = Path(directory) / NAME
    new = file.with_suffix(".new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as writer:
            writer.write(path)
        new.replace(file)
    except OSError as error:
        log.warning("other processes will not find the store: %s: %s", file, error.strerror)


def withdraw(directory: str, path: str) -> None:
    """Undo `announce`, unless another server has announced itself since."""
    file = Path(directory) / NAME
    try:
        if file.read_text(encoding="utf-8") == path:
            file.unlink()
    except OSError as error:
        log.debug("%s is not removed: %s", file, error.strerror)


def served_at(directory: str) -> str | None:
    """The ``unix://`` url at which the store in ``directory`` is served now; None if it is not."""
    try:
        path = (Path(directory) / NAME).read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(path)
    except (OSError, ValueError):
        return None
    return f"unix://{path}"
