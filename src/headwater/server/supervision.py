"""Notifies the service manager (systemd) of the server's state, over a datagram socket.

    READY=1          clients are served
    RELOADING=1      SIGHUP is being handled; READY=1 follows
    STOPPING=1       the server stops
    WATCHDOG=1       the event loop runs; sent at half the interval of WATCHDOG_USEC
    EXTEND_TIMEOUT_USEC=…   the journal is long, and its replay makes progress

Rule 1. A notification that cannot be sent is logged once and never stops the server.
Rule 2. The event loop itself sends WATCHDOG=1: a loop that hangs sends none.
Rule 3. The start asks for more time only while its thread uses the processor: systemd ends a start that
        hangs.

Source: sd_notify(3), sd_watchdog_enabled(3); Redis, server.c, redisSupervisedSystemd.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headwater.config.process import ProcessConfig

log = logging.getLogger("headwater.server")

EXTEND_EVERY_SECONDS = 10.0
EXTENSION_USEC = 30_000_000
_SEND_SECONDS = 1.0
"""Maximum time that a notification waits for a service manager that does not read, in seconds."""


class ServiceNotifier:
    """Sends notifications to the service manager. Without one, every method does nothing.

    ``address`` is systemd's NOTIFY_SOCKET: a path, or a name that begins with ``@`` (abstract).
    """

    def __init__(self, address: str = "", *, watchdog_seconds: float = 0.0) -> None:
        self.watchdog_seconds = watchdog_seconds
        """Maximum interval between two WATCHDOG=1, in seconds; 0 if none are expected."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._failed = False
        self._is_ready = False
        """True if READY=1 was sent and STOPPING=1 was not."""
        self._beat: asyncio.TimerHandle | None = None
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        elif address:
            log.warning(
                "NOTIFY_SOCKET %r is neither a path nor an abstract name: no notifications are sent",
                address,
            )

    @classmethod
    def of(cls, config: ProcessConfig, environ: Mapping[str, str]) -> ServiceNotifier:
        """Return the notifier for the setting ``supervised`` and the environment."""
        address = environ.get("NOTIFY_SOCKET", "")
        if config.supervised == "no":
            return cls()
        if not address and config.supervised == "systemd":
            log.warning(
                "supervised is systemd, but NOTIFY_SOCKET is not set: no notifications are sent; set "
                "Type=notify in the unit, or supervised to auto"
            )
        return cls(address, watchdog_seconds=_watchdog_seconds(environ))

    @property
    def name(self) -> str:
        """The value of process_supervised in INFO."""
        return "no" if self._socket is None else "systemd"

    def ready(self, status: str) -> None:
        """Notify that clients are served."""
        self._is_ready = True
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """Notify that the server stops. Its loop sends nothing more."""
        if self._beat is not None:
            self._beat.cancel()
        self._is_ready = False
        self._send(f"STOPPING=1\nSTATUS={status}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Notify of a reload for the duration of the block. Sends nothing while the server starts or
        stops: READY=1 would end the start."""
        if not self._is_ready:
            yield
            return
        # With Type=notify-reload, systemd compares this time with that of its signal.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._send("READY=1")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send WATCHDOG=1 from ``loop``, twice as often as required."""
        if self._socket is not None and self.watchdog_seconds:
            # If the manager does not read, its queue is full, and the loop must not wait for it.
            self._send("WATCHDOG=1", wait_seconds=0.0)
            self._beat = loop.call_later(self.watchdog_seconds / 2, self.watch, loop)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Ask systemd for more time while the block runs in this thread and makes progress."""
        if self._socket is None:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(
            target=self._extend,
            args=(ended, _processor_time(threading.get_ident())),
            name="headwater-start",
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        """Send nothing more."""
        if self._beat is not None:
            self._beat.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _extend(self, ended: threading.Event, worked: Callable[[], float]) -> None:
        before = -1.0
        while (now := worked()) > before:
            before = now
            self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION_USEC}\nSTATUS=loading the journal")
            if ended.wait(EXTEND_EVERY_SECONDS):
                return

    def _send(self, text: str, *, wait_seconds: float = _SEND_SECONDS) -> None:
        if self._socket is None:
            return
        self._socket.settimeout(wait_seconds)
        try:
            self._socket.sendto(text.encode("utf-8", "backslashreplace"), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("the service manager cannot be notified: %s", error)
            self._failed = True


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return the maximum interval between two WATCHDOG=1 of this process, in seconds; 0 if none are expected."""
    pid, usec = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(usec) / 1_000_000 if usec.isascii() and usec.isdigit() else 0.0


def _processor_time(thread: int) -> Callable[[], float]:
    """Return a function that measures the processor time of a thread. If the system does not have this
    clock, the function measures elapsed time."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)
