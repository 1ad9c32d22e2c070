"""Lets Spark read an embedded store of this process, through a unix socket that only this user can open.

    driver process                                   Spark's Python processes
    your clients ── EmbeddedStore ── Node ── unix socket ──▶ planning, and the tasks of local[*]
                      Rule 1           Rule 2

An embedded store belongs to one process. Spark runs the source in other processes.

Rule 1. Both sides use the same store: Spark can immediately read the entries that this process adds. The
        socket counts as one more client, so the store stays open while Spark may read from it.
Rule 2. The socket has mode 0600 and is in a new directory of mode 0700. No port is opened.
Rule 3. The store is served with a local master only: other machines cannot reach a socket in this file system.
Rule 4. Serving ends with the block of `serving`, with Spark (`spark.stop()`) or with the process, and
        removes the directory.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headwater.client.embedded_opening import open_embedded
from headwater.client.embedded_store import SHORTEST_PAUSE_S, EmbeddedStore
from headwater.client.embedded_url import SCHEME, parse_embedded
from headwater.client.reentrancy import REENTRANCY_GUARD
from headwater.config.config import Config
from headwater.errors import ConfigError, HeadwaterError
from headwater.server.net.driver import Driver
from headwater.server.net.listener import bind_all
from headwater.server.net.loop import HAS_EPOLL, EpollLoop, ReaderLoop
from headwater.server.session.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("headwater.spark")

MAX_SOCKET_PATH_BYTES: Final = 103
"""Maximum length of a socket's path without its zero byte: sockaddr_un has 104 bytes on macOS, 108 on Linux."""

_LOOK_SECONDS: Final = 1.0
"""Time between two checks whether Spark has stopped, in seconds; py4j does not report that."""

_ENDING_SECONDS: Final = 10.0


def is_embedded(url: str) -> bool:
    """Return whether ``url`` names an embedded store.

    >>> is_embedded("headwater:///var/lib/orders"), is_embedded("redis://localhost")
    (True, False)
    """
    return url.startswith(f"{SCHEME}:")


def reachable(url: str, spark: SparkSession) -> str:
    """Return ``url`` in a form that Spark's other processes can use.

    An embedded store is opened in this process and served on a socket until Spark stops.

    Raises `HeadwaterError` on a cluster, and the errors of `headwater.connect`.
    """
    if not is_embedded(url):
        return url
    refuse_cluster(url, _master(spark))
    return _served(url, spark)


def reachable_options(options: Mapping[str, str], spark: SparkSession) -> dict[str, str]:
    """Return ``options`` with a url that Spark's other processes can use."""
    return {
        name: reachable(value, spark) if name.lower() == "url" else value
        for name, value in options.items()
    }


def refuse_cluster(url: str, master: str) -> None:
    """Raise `HeadwaterError` for an embedded store if Spark's executors run on other machines."""
    if is_embedded(url) and not master.startswith("local"):
        raise HeadwaterError(
            f"{_shown(url)} is a store within this process, and {master} runs tasks on other machines, "
            f"which cannot reach it. Serve it ({_serve_command(url)}) and give "
            "url=redis://this-host:6379; or run Spark here, with master local[*]."
        )


def refuse_unserved(url: str) -> None:
    """Raise `HeadwaterError` if ``url`` is embedded: a process of Spark cannot open the driver's store."""
    if is_embedded(url):
        raise HeadwaterError(
            f"{_shown(url)} is a store within one process, and Spark runs the source in another. Read it "
            'with headwater.spark.read(spark, "orders", url=…) or read_stream, write and write_stream, '
            "which let Spark reach the store of your process; or use the unix:// url of "
            "headwater.spark.serving(url); or serve the store "
            f"({_serve_command(url)}) and give url=redis://localhost:6379."
        )


@contextmanager
def serving(url: str) -> Iterator[str]:
    """Serve an embedded store to other processes of this user on this machine while the block runs.

    >>> import headwater, redis
    >>> with headwater.connect("headwater://memory/shop") as shop:
    ...     _ = shop.xadd("orders", {"item": "tea"})
    ...     with serving("headwater://memory/shop") as url, redis.Redis.from_url(url) as other:
    ...         print(url.partition(":")[0], other.xlen("orders"))
    unix 1

    The block's value is a ``unix://`` url for the store; only this user can open its socket. Raises the errors of
    `headwater.connect`, and `ConfigError` for ``headwater://memory`` without a name.
    """
    served = _Served(url)
    try:
        yield served.url
    finally:
        served.end()


_all_served: dict[str, _Served] = {}
_lock = threading.Lock()


def _served(url: str, spark: SparkSession) -> str:
    key = f"{os.getpid()} {url}"
    with _lock:
        served = _all_served.get(key)
        if served is None or served.ended:
            served = _all_served[key] = _Served(url)
        served.spark = spark
        return served.url


def _end_all() -> None:
    """Stop serving all stores of this process. A forked child must not stop its parent's serving."""
    for served in list(_all_served.values()):
        served.end()


def _forget_after_fork() -> None:
    _all_served.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_after_fork)


class _Served:
    """One store with its socket, and the thread that serves it."""

    def __init__(self, url: str) -> None:
        address = parse_embedded(url)
        if address.key is None:
            raise ConfigError(
                f"{address.shown} is private to one client, so Spark would open another, empty store. "
                "Give it a name: headwater://memory/orders"
            )
        self.spark: SparkSession | None = None
        """The session with which serving ends; None if serving does not depend on a session."""
        self.ended = False
        self._handle, options = open_embedded(url, None, None)
        try:
            self._directory = _private_directory()
        except BaseException:
            self._handle.close()
            raise
        path = self._directory / "s"
        database = f"?db={options['db']}" if options.get("db") else ""
        self.url = f"unix://{quote(str(path))}{database}"
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(path,), name="headwater-spark", daemon=True
        )
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._clean()
            raise

    def end(self) -> None:
        """Stop serving and close the store; a second call does nothing."""
        if not self.ended and not self._started.exception():
            loop, stop = self._started.result()
            with suppress(RuntimeError):  # the loop has already ended
                loop.call_soon_threadsafe(stop.set)
            self._thread.join(_ENDING_SECONDS)

    def _run(self, path: Path) -> None:
        try:
            asyncio.run(self._serve(path))
        except Exception:
            log.exception("%s is no longer served", self._handle.store.address)
        finally:
            if self._started.done() and not self._started.exception():
                self._clean()

    async def _serve(self, path: Path) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        store = self._handle.store
        config = Config(bind=(), unixsocket=str(path), unixsocketperm="600")
        try:
            listeners = bind_all(config)
            driver = _driver(store, stop)
            for listener in listeners:
                listener.listen(driver, backlog=config.tcp_backlog)
        except BaseException as error:
            self._started.set_exception(error)
            return
        watch = _Watch(store, driver, loop)
        self._started.set_result((loop, stop))
        try:
            while not (stop.is_set() or store.closed or self._spark_stopped()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
        finally:
            for listener in listeners:
                listener.close()
            watch.stop()
            driver.stop()

    def _spark_stopped(self) -> bool:
        # None as soon as `spark.stop()` is called.
        return self.spark is not None and self.spark.sparkContext._jsc is None  # noqa: SLF001

    def _clean(self) -> None:
        self.ended = True
        shutil.rmtree(self._directory, ignore_errors=True)
        try:
            self._handle.close()
        except HeadwaterError:
            log.exception("%s could not be closed cleanly", self._handle.store.address)


class _Quiet(Driver):
    """A driver for a store that embedded clients use too.

    Clients that the garbage collector finds during a turn are closed after the turn (client/reentrancy.py,
    rule 2).
    """

    def run_turn(self, ready: list[Session] | None) -> None:
        with REENTRANCY_GUARD:
            super().run_turn(ready)


class _EpollLoop(_Quiet, EpollLoop):
    pass


class _ReaderLoop(_Quiet, ReaderLoop):
    pass


def _driver(store: EmbeddedStore, stop: asyncio.Event) -> Driver:
    kind = _EpollLoop if HAS_EPOLL else _ReaderLoop
    return kind(store.node, on_stop=stop.set)


class _Watch:
    """Ticks the driver at deadlines set by other threads' turns; the driver knows only those of its own turns."""

    def __init__(
        self, store: EmbeddedStore, driver: Driver, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store, self._driver, self._loop = store, driver, loop
        self._timer: asyncio.TimerHandle | None = None
        with REENTRANCY_GUARD, store.node.lock:
            store.add_sleeper(self)
        self._look()

    def wake(self) -> None:
        """Look again, because the next deadline is earlier. Any thread that has the node's lock may call this."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look)

    def stop(self) -> None:
        with REENTRANCY_GUARD, self._store.node.lock:
            self._store.remove_sleeper(self)
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with REENTRANCY_GUARD, self._store.node.lock:
            pause = None if self._store.closed else self._store.pause()
        if pause is not None:
            self._timer = self._loop.call_later(max(pause, SHORTEST_PAUSE_S), self._due)

    def _due(self) -> None:
        self._timer = None
        self._driver.tick()
        self._look()


def _private_directory() -> Path:
    """Create a directory of mode 0700 whose path leaves room for a socket's name."""
    for parent in (None, "/tmp"):  # noqa: S108 - mkdtemp's own mode and name
        with suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="hw-", dir=parent))
            if len(os.fsencode(made / "s")) <= MAX_SOCKET_PATH_BYTES:
                return made
            made.rmdir()
    raise HeadwaterError(
        f"no temporary directory has a path short enough for a unix socket ({MAX_SOCKET_PATH_BYTES} "
        "bytes): set TMPDIR to a shorter one, such as /tmp"
    )


def _master(spark: SparkSession) -> str:
    try:
        master: Any = spark.sparkContext.master
    except Exception:  # Spark Connect has no context here
        return "Spark Connect"
    return str(master)


def _shown(url: str) -> str:
    return parse_embedded(url).shown


def _serve_command(url: str) -> str:
    directory = parse_embedded(url).directory
    return f"headwater serve --dir {directory}" if directory else "headwater serve --dir DIRECTORY"
