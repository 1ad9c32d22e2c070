"""The open apps of this process, among which a `Stream` finds the app to publish through."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import Any, Protocol


class OpenApp(Protocol):
    """The methods of `App` that `Stream` uses, with the same parameters."""

    name: str

    def send(self, *args: Any, **options: Any) -> Awaitable[Any]: ...

    def send_many(self, *args: Any, **options: Any) -> Awaitable[Any]: ...

    def publish(self, *args: Any, **options: Any) -> Any: ...

    def publish_many(self, *args: Any, **options: Any) -> Any: ...

    def cancel(self, stream: Any, scheduled_id: str) -> Awaitable[bool]: ...

    def cancel_blocking(self, stream: Any, scheduled_id: str) -> bool: ...


_open: list[OpenApp] = []
"""The open apps. An app is listed once for each block that has it open."""

_lock = threading.Lock()


def open_apps() -> list[OpenApp]:
    """Return the apps through which messages can be published now."""
    with _lock:
        return list(dict.fromkeys(_open))


def opened(app: OpenApp) -> None:
    """Record that a block has opened ``app``."""
    with _lock:
        _open.append(app)


def left(app: OpenApp) -> None:
    """Record that a block that had opened ``app`` has ended."""
    with _lock:
        _open.remove(app)
