"""The apps of this process that are open, so that a `Stream` finds the app to publish through."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol


class OpenApp(Protocol):
    """What a `Stream` asks of an app. Its methods take what those of `App` take."""

    name: str

    def send(self, *args: Any, **options: Any) -> Awaitable[Any]: ...

    def send_many(self, stream: Any, messages: Iterable[Any]) -> Awaitable[list[str]]: ...

    def publish(self, *args: Any, **options: Any) -> Any: ...

    def publish_many(self, stream: Any, messages: Iterable[Any]) -> list[str]: ...

    def cancel(self, stream: Any, scheduled_id: str) -> Awaitable[bool]: ...

    def cancel_blocking(self, stream: Any, scheduled_id: str) -> bool: ...


_open: list[OpenApp] = []
"""Each app once for each block that opened it."""

_lock = threading.Lock()


def open_apps() -> list[OpenApp]:
    """The apps through which something can be published now."""
    with _lock:
        return list(dict.fromkeys(_open))


def opened(app: OpenApp) -> None:
    """A block has opened ``app``."""
    with _lock:
        _open.append(app)


def left(app: OpenApp) -> None:
    """A block that had opened ``app`` has ended."""
    with _lock:
        _open.remove(app)
