"""The file in a data directory that names the unix socket on which the directory is served.

Only one process at a time can open a directory. While ``headwater work`` serves a directory to its workers, other
processes that publish to the directory or inspect it find the socket by this file.

Rule. The file counts only while its socket accepts connections, because it may be left over from a server that was
killed. Only the process that has locked the directory writes or deletes it.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

log = logging.getLogger("headwater.worker")

NAME = "served-at"

CONNECT_SECONDS = 5.0
"""Maximum time for a server to accept a connection when its backlog is full, in seconds."""


def announce(directory: str, path: str) -> None:
    """Write the file that announces that the store in ``directory`` is served on the unix socket ``path``.

    If the file cannot be written, this is logged. The workers do not need the file.
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
    """Delete the file, unless another server has written it in the meantime."""
    file = Path(directory) / NAME
    try:
        if file.read_text(encoding="utf-8") == path:
            file.unlink()
    except OSError as error:
        log.debug("%s was not deleted: %s", file, error.strerror)


def served_at(directory: str) -> str | None:
    """Return the ``unix://`` url at which the store in ``directory`` is now served; None if it is not served."""
    try:
        path = (Path(directory) / NAME).read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(path)
    except (OSError, ValueError):
        return None
    return f"unix://{path}"
