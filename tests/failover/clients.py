"""Clients of a group, which log what they attempt and what they are answered. Run on a side of the network:

    python -m tests.failover.clients --sentinels 10.0.0.4:6379,… --log DIR --name one --wait 1 --unique

producers   add messages with a number to `RAW`, each once. With ``--unique`` one of them has an idempotent producer's
            name and repeats what nobody answered until it is answered
readers     read `RAW` as a group, acknowledge each entry, and take over what others left
worker      an app that handles `ORDERS` and publishes a result for each, and sends these orders

All find the primary through the Sentinels and go on after errors. At SIGUSR1 producers end and the others go on; at
SIGTERM all end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.errors import HeadwaterError
from headwater.worker import App, Delivery, Stream
from tests.failover.logs import Log

SERVICE: Final = "shop"
RAW: Final = "raw"
GROUP: Final = "readers"

TIMEOUT_SECONDS: Final = 2.0
"""How long a client waits for a reply. After that nobody knows whether the command was executed."""
FIND_SECONDS: Final = 0.5
WAIT_MS: Final = 1_000
PAUSE_SECONDS: Final = 0.01
"""Between two messages of a producer."""
BATCH: Final = 20
IDLE_MS: Final = 3_000
"""An entry that was not acknowledged for so long is taken over."""

ERRORS: Final = (redis.RedisError, OSError)


class Order(msgspec.Struct):
    """A message of `orders`."""

    n: str


class Invoice(msgspec.Struct):
    """Its result."""

    n: str


orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)

producing = threading.Event()
running = threading.Event()
stopping = threading.Event()
"""The opposite of ``running``, to wait for."""


class Finder:
    """Finds the primary. A connection sends each command once: a repeated one might add an entry twice."""

    def __init__(self, places: list[tuple[str, int]]) -> None:
        self._sentinels = [
            redis.Redis(
                host,
                port,
                socket_timeout=FIND_SECONDS,
                socket_connect_timeout=FIND_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            for host, port in places
        ]

    def primary(self) -> redis.Redis:
        """A connection to the primary that the first Sentinel names, if it says that it is one. Raises
        `ConnectionError`."""
        for sentinel in random.sample(self._sentinels, len(self._sentinels)):
            try:
                ask: Any = sentinel.execute_command
                host, port = ask(b"SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            except ERRORS:
                continue
            except TypeError:
                continue  # it does not know the service yet
            client = redis.Redis(
                host.decode(),
                int(port),
                socket_timeout=TIMEOUT_SECONDS,
                socket_connect_timeout=FIND_SECONDS,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                decode_responses=True,
            )
            role: Any = client.execute_command("ROLE")
            if role[0] != "master":
                client.close()
                continue
            return client
        raise redis.ConnectionError("no Sentinel names a primary")


class Actor:
    """A client in a thread, with a log and a connection that is made again after each error."""

    def __init__(self, options: argparse.Namespace, who: str, finder: Finder) -> None:
        self.log = Log(options.log, f"{options.name}-{who}")
        self.wait: int = options.wait
        self._finder = finder
        self._client: redis.Redis | None = None

    @property
    def client(self) -> redis.Redis:
        """The connection to the primary. Raises `ERRORS`."""
        if self._client is None:
            self._client = self._finder.primary()
        return self._client

    def lose(self) -> None:
        """Close the connection after an error; the next command looks for the primary again."""
        if self._client is not None:
            self._client.close()
        self._client = None
        time.sleep(0.05)

    def call(self, commands: list[tuple[str | int, ...]]) -> list[Any]:
        """Send commands at once and return their replies, in which errors may be. With ``--wait``, raise unless enough
        replicas have what they wrote."""
        pipe = self.client.pipeline(transaction=False)
        for words in commands:
            pipe.execute_command(*words)
        if self.wait:
            pipe.execute_command("WAIT", self.wait, WAIT_MS)
        replies = list(pipe.execute(raise_on_error=False))
        if self.wait:
            has = replies.pop()
            if isinstance(has, Exception) or has < self.wait:
                raise redis.ResponseError(f"WAIT answers {has}")
        for reply in replies:
            if isinstance(reply, redis.ConnectionError | redis.ReadOnlyError):
                raise reply
        return replies


def produce(actor: Actor, *, unique: bool) -> None:
    """Add messages until the producers end."""
    number = 0
    while producing.is_set():
        number += 1
        what = f"{actor.log.who}:{number}"
        idempotent = ("IDMP", actor.log.who, what) if unique else ()
        actor.log.write("tried", RAW, what=what)
        while producing.is_set():
            try:
                (reply,) = actor.call([("XADD", RAW, *idempotent, "*", "n", what)])
                if isinstance(reply, Exception):
                    raise reply
            except ERRORS as error:
                actor.log.write("failed", RAW, what=what, text=str(error) or repr(error))
                actor.lose()
                if unique:
                    continue
            else:
                actor.log.write("answered", RAW, what=what, id=str(reply))
            break
        time.sleep(PAUSE_SECONDS)


def read(actor: Actor) -> None:
    """Read entries and acknowledge them."""
    cursor = "0-0"
    claim_at = 0.0
    words: tuple[str | int, ...]
    while running.is_set():
        try:
            asked = time.monotonic()
            if asked >= claim_at:
                words = ("XAUTOCLAIM", RAW, GROUP, actor.log.who, IDLE_MS, cursor, "COUNT", BATCH)
                cursor, rows, *_deleted = whole(actor, words)
                claim_at = asked + (1.0 if cursor == "0-0" else 0.0)
            else:
                words = ("XREADGROUP", "GROUP", GROUP, actor.log.who, "COUNT", BATCH, "BLOCK", 500)
                found = whole(actor, (*words, "STREAMS", RAW, ">"))
                rows = found[0][1] if found else []
            acknowledge(actor, [str(entry) for entry, _fields in rows], asked)
        except ERRORS as error:
            actor.log.write("error", RAW, text=str(error) or repr(error))
            actor.lose()
            if "NOGROUP" in str(error):
                create(actor)


def whole(actor: Actor, words: tuple[str | int, ...]) -> Any:
    """Send a command and return its reply, without the client's conversions and without WAIT."""
    pipe: Any = actor.client.pipeline(transaction=False)
    # For names in bytes the client has no conversions, so the form of a reply does not depend on its version.
    pipe.execute_command(str(words[0]).encode(), *words[1:])
    return pipe.execute()[0]


def acknowledge(actor: Actor, ids: list[str], asked: float) -> None:
    """Log entries as delivered, and acknowledge them."""
    for one in ids:
        actor.log.write("delivered", RAW, id=one, asked=asked)
    for one in ids:
        actor.log.write("acking", RAW, id=one)
    if not ids:
        return
    for one, reply in zip(ids, actor.call([("XACK", RAW, GROUP, one) for one in ids]), strict=True):
        if reply == 1:
            actor.log.write("acked", RAW, id=one)
        elif isinstance(reply, Exception):
            raise reply


def create(actor: Actor) -> None:
    """Make the group, unless it exists. A primary that lost it delivers everything again."""
    try:
        whole(actor, ("XGROUP", "CREATE", RAW, GROUP, "0", "MKSTREAM"))
    except ERRORS as error:
        if "BUSYGROUP" not in str(error):
            actor.log.write("error", RAW, text=str(error) or repr(error))


class Shop:
    """The worker, and the producer of its orders."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.app = App(
            f"redis+sentinel://{options.sentinels}/{SERVICE}", name=options.name, grace="5s"
        )
        self._log = Log(options.log, f"{options.name}-worker")
        self._sent = Log(options.log, f"{options.name}-shop")
        self._send: dict[str, Any] = {"wait": options.wait} if options.wait else {}
        self._unique: bool = options.unique

        @self.app.consumer(
            orders, group="billing", into=invoices, lease="1s", claim_after="3s", concurrency=8
        )
        async def bill(order: Order, delivery: Delivery) -> Invoice:
            self._log.write("handled", orders.name, what=order.n, id=delivery.id)
            return Invoice(n=order.n)

    async def run(self) -> None:
        """Work and send until the clients end."""
        working = asyncio.create_task(self.app.run())
        async with self.app:
            await self._produce()
            ended = asyncio.create_task(asyncio.to_thread(stopping.wait))
            await asyncio.wait({ended, working}, return_when=asyncio.FIRST_COMPLETED)
            stopping.set()
        self.app.stop()
        try:
            await working
        except HeadwaterError as error:
            self._log.write("error", orders.name, text=f"the worker ended: {error}")

    async def _produce(self) -> None:
        number = 0
        while producing.is_set():
            number += 1
            what = f"{self._sent.who}:{number}"
            options = self._send | ({"dedupe": what} if self._unique and not number % 2 else {})
            self._sent.write("tried", orders.name, what=what)
            try:
                sending = self.app.send(orders, Order(n=what), **options)
                entry = await asyncio.wait_for(sending, 3 * TIMEOUT_SECONDS)
            except (HeadwaterError, TimeoutError, *ERRORS) as error:
                text = str(error) or repr(error)
                self._sent.write("failed", orders.name, what=what, text=text)
            else:
                self._sent.write("answered", orders.name, what=what, id=str(entry))
            await asyncio.sleep(PAUSE_SECONDS)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--sentinels", required=True, help="HOST:PORT,…")
    arguments.add_argument("--log", required=True, type=Path, help="the directory of the logs")
    arguments.add_argument("--name", required=True, help="unique among the clients of a run")
    arguments.add_argument("--wait", type=int, default=0, help="replicas to wait for with WAIT")
    arguments.add_argument(
        "--unique", action="store_true", help="the server has idempotent producers"
    )
    return arguments


def _end(_number: int, _frame: object) -> None:
    producing.clear()
    running.clear()
    stopping.set()


def main() -> int:
    """Run all clients of one side until a signal ends them."""
    options = parser().parse_args()
    producing.set()
    running.set()
    signal.signal(signal.SIGUSR1, lambda *_: producing.clear())
    signal.signal(signal.SIGTERM, _end)
    places = [
        (host, int(port))
        for host, _, port in (place.rpartition(":") for place in options.sentinels.split(","))
    ]
    actors: list[Callable[[], None]] = []
    for who in ("producer-1", "producer-2"):
        actor = Actor(options, who, Finder(places))
        unique = options.unique and who == "producer-2"
        actors.append(lambda actor=actor, unique=unique: produce(actor, unique=unique))  # type: ignore[misc]
    for who in ("reader-1", "reader-2"):
        actor = Actor(options, who, Finder(places))
        actors.append(lambda actor=actor: read(actor))  # type: ignore[misc]
    threads = [threading.Thread(target=one, daemon=True) for one in actors]
    for thread in threads:
        thread.start()
    asyncio.run(Shop(options).run())
    for thread in threads:
        thread.join(2 * TIMEOUT_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
