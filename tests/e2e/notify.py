"""The service manager's end of NOTIFY_SOCKET: receives the notifications that a server sends to systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

WITHIN = 30.0
"""How many seconds a busy machine may take for an immediate reaction."""


class ServiceManager:
    """Receives notifications at a path, or at an abstract name if ``directory`` is None."""

    def __init__(self, directory: Path | None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(WITHIN)
        if directory is None:
            self.address = f"@headwater-{os.getpid()}-{id(self)}"
            self.socket.bind(f"\0{self.address[1:]}")
        else:
            self.address = str(directory / "notify")
            self.socket.bind(self.address)

    def close(self) -> None:
        self.socket.close()

    def next(self) -> dict[str, str]:
        """Return the next notification: name → value."""
        text = self.socket.recv(65536).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def until(
        self, name: str, *, also: Callable[[dict[str, str]], object] | None = None
    ) -> dict[str, str]:
        """Return the next notification that contains ``name``; pass those before it to ``also``."""
        while name not in (said := self.next()):
            if also is not None:
                also(said)
        return said
