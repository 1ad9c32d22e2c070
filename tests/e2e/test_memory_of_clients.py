"""What clients can make grow is in used_memory, counts towards maxmemory, and leaves the account again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import NamedTuple

import pytest
import redis

from headwater.server.services.observability.info import running
from headwater.testing.server import server_process
from tests.conformance.wire import Wire, connected, encode

Words = tuple[str, ...]
Request = Words | bytes
Sent = Callable[[int], Iterator[Request]]

LONG = "n" * 180
"""Makes a name of 200 bytes."""

BATCH = 200

PATIENCE_S = 20
STILL_BYTES = 50_000

REFUSED = b"-NOPERM"

IDEMPOTENT = (
    "for n = 1, 100 do redis.call('XADD', 's', 'IDMP', 'p' .. n, string.rep('n', 180) .. ARGV[1], "
    "'*', 'a', 'b') end"
)
"""Adds an entry for each of a hundred producers."""


class Grower(NamedTuple):
    """How clients take memory: each of ``clients`` sends ``sent(times)``, and reads the replies if they are
    ``answered``. Then ``undo`` frees all of it; without it the clients disconnect."""

    times: int
    sent: Callable[[int], Iterator[Request]]
    undo: tuple[Words, ...] = ()
    given: tuple[Words, ...] = ()
    clients: int = 1
    answered: bool = True
    purged: bool = False
    """Whether growing frees memory on the way, such as a table for a larger one, which the allocator keeps. How
    much it frees depends on how the network cuts a request."""
    least: float = 40e6
    """What the process takes, at least."""


def each(*words: str) -> Sent:
    """Repeat a request with a number in place of ``#``."""
    return lambda count: (
        tuple(word.replace("#", str(number)) for word in words) for number in range(count)
    )


def both(first: Sent, second: Sent, *, share: float = 1.0) -> Sent:
    """Requests of one kind, then those of another, of which there are fewer."""
    return lambda count: chain(first(count), second(int(count * share)))


def many(
    *words: str, name: str, size: int = 1000, last: tuple[str, ...] = (), same: str = ""
) -> Sent:
    """Requests with ``size`` names each, and as many times ``same`` if it is given."""

    def sent(count: int) -> Iterator[Request]:
        for first in range(0, count, size):
            names = [name.replace("#", str(n)) for n in range(first, min(count, first + size))]
            yield (*words, *names, *([same] * len(names) if same else ()), *last)

    return sent


def handed_back(*how: str) -> Sent:
    """Add entries, read them and hand them back."""

    def sent(count: int) -> Iterator[Request]:
        yield "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"
        for first in range(1, count + 1, 100):
            ids = [f"{number}-1" for number in range(first, min(count + 1, first + 100))]
            yield from (("XADD", "s", one, "a", "b") for one in ids)
            yield "XREADGROUP", "GROUP", "g", "c", "COUNT", "100", "STREAMS", "s", ">"
            yield *how, "IDS", str(len(ids)), *ids

    return sent


def refused(count: int) -> Iterator[Request]:
    yield "AUTH", "nobody", ""
    yield from each("GET", f"{LONG * 5}#")(count)


def named(count: int) -> Iterator[Request]:
    yield "CLIENT", "SETNAME", "n" * count
    yield "CLIENT", "SETINFO", "lib-name", "n" * count
    yield "CLIENT", "SETINFO", "lib-ver", "n" * count


def queued(value: str) -> Sent:
    """A transaction that is not executed."""
    return lambda count: chain([("MULTI",)], each("SET", "k#", value)(count))


def half(request: tuple[str, ...]) -> Sent:
    """The first ``count`` bytes of a request."""
    return lambda count: iter([encode(*request)[:count]])


FLUSH = (("FLUSHALL",),)
WITHOUT_ONE = (("ACL", "DELUSER", "one"),)
UNSUBSCRIBED = (("CLIENT", "KILL", "TYPE", "pubsub"),)
NOBODY = (
    ("CONFIG", "SET", "acllog-max-len", "1000000"),
    ("ACL", "SETUSER", "nobody", "on", "nopass", "+get"),
)
SLOW = (
    ("CONFIG", "SET", "slowlog-max-len", "1000000"),
    ("CONFIG", "SET", "slowlog-log-slower-than", "0"),
)
NOT_SLOW = (("CONFIG", "SET", "slowlog-log-slower-than", "-1"), ("SLOWLOG", "RESET"))
GROUP = (("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"),)

SETS, EXPIRES, DELETES = (
    each("SET", f"{LONG}#", "v"),
    each("EXPIRE", f"{LONG}#", "1000"),
    each("DEL", f"{LONG}#"),
)

GROWERS = {
    "keys": Grower(200_000, SETS, FLUSH),
    "deleted keys": Grower(250_000, both(SETS, DELETES, share=0.45), FLUSH),
    "keys with an expiry": Grower(120_000, each("SET", f"{LONG}#", "v", "EX", "1000"), FLUSH),
    "keys that get an expiry": Grower(90_000, both(SETS, EXPIRES), FLUSH),
    "lists of bytes": Grower(8_000, each("RPUSH", "k", *"abcdefghij" * 100), FLUSH),
    "small lists": Grower(60_000, each("RPUSH", "k#", "a", "bb"), FLUSH),
    "small hashes": Grower(120_000, each("HSET", "k#", *"abcdefghij"), FLUSH),
    "small sets": Grower(120_000, each("SADD", "k#", "a", "bb"), FLUSH),
    "a large hash": Grower(4_000, each("HSET", "k", *(f"#{n}" for n in range(200))), FLUSH),
    "streams": Grower(40_000, each("XADD", f"{LONG}#", "*", "a", "b"), FLUSH),
    "groups": Grower(50_000, each("XGROUP", "CREATE", "s", f"{LONG}#", "0", "MKSTREAM"), FLUSH),
    "consumers": Grower(
        150_000, each("XGROUP", "CREATECONSUMER", "s", "g", f"{LONG}#"), FLUSH, GROUP
    ),
    "producers": Grower(40_000, each("XADD", "s", "IDMP", f"{LONG}#", "i", "*", "a", "b"), FLUSH),
    "idempotent ids": Grower(
        1_200, many("EVAL", IDEMPOTENT, "0", name="#", size=1), FLUSH,
        (("XADD", "s", "1-1", "a", "b"), ("XCFGSET", "s", "IDMP-MAXSIZE", "10000")),
    ),
    "delayed entries": Grower(
        200_000, handed_back("XSETTLE", "s", "g", "c", "FAIL", "DELAY", "5000000"), FLUSH
    ),
    "released entries": Grower(300_000, handed_back("XNACK", "s", "g", "FAIL"), FLUSH),
    "watched keys": Grower(200_000, many("WATCH", name="key:#")),
    "keys watched by several": Grower(40_000, many("WATCH", name=f"{LONG}#"), clients=3),
    "channels": Grower(150_000, each("SUBSCRIBE", "channel:#")),
    "channels of several": Grower(40_000, each("SUBSCRIBE", f"{LONG}#"), clients=3),
    "patterns": Grower(80_000, each("PSUBSCRIBE", "channel:#:*")),
    "patterns of one prefix": Grower(120_000, each("PSUBSCRIBE", "*:channel:#")),
    "shard channels": Grower(150_000, each("SSUBSCRIBE", "channel:#")),
    "connections": Grower(1, each("PING"), clients=3000, least=3e6),
    "names of clients": Grower(500_000, named, clients=50),
    "users": Grower(
        20_000,
        each("ACL", "SETUSER", "user#", "on", ">secret", "~orders:*", "&news", "+@stream"),
        (("ACL", "DELUSER", *(f"user{n}" for n in range(20_000))),),
    ),
    "keys of a user": Grower(
        200_000, many("ACL", "SETUSER", "one", name="~orders#:*", size=20_000), WITHOUT_ONE,
        purged=True,
    ),
    "channels of a user": Grower(
        400_000, many("ACL", "SETUSER", "one", name="&orders:#", size=40_000), WITHOUT_ONE,
        purged=True,
    ),
    "passwords of a user": Grower(
        250_000, many("ACL", "SETUSER", "one", name=">secret#", size=25_000), WITHOUT_ONE,
        purged=True,
    ),
    "commands of users": Grower(
        300,
        each("ACL", "SETUSER", "user#", *(f"+get|{LONG}{n}" for n in range(300))),
        (("ACL", "DELUSER", *(f"user{n}" for n in range(300))),),
    ),
    "selectors of a user": Grower(
        40_000, many("ACL", "SETUSER", "one", name="(~orders#:* +get)", size=8000), WITHOUT_ONE,
        purged=True,
    ),
    "the slow log": Grower(
        50_000, each("DEL", *(f"{LONG[:60]}{n}:#" for n in range(10))), NOT_SLOW, SLOW
    ),
    "the log of refusals": Grower(50_000, refused, (("ACL", "LOG", "RESET"),), NOBODY),
    "queues of MULTI": Grower(200_000, queued("v" * 20), clients=4),
    "a queue of large values": Grower(800, queued("v" * 100_000)),
    "keys of blocked readers": Grower(
        10_000, many("XREAD", "BLOCK", "0", "STREAMS", name="key:#", size=10_000, same="0"),
        clients=30, answered=False,
    ),
    "keys of blocked clients": Grower(
        10_000, many("BLPOP", name=f"{LONG}#", size=10_000, last=("0",)), clients=15, answered=False
    ),
    "requests during a pause": Grower(
        1, each("SET", "k", "v" * 1_000_000), (("CLIENT", "UNPAUSE"),),
        (("CLIENT", "PAUSE", "10000000", "WRITE"),), clients=40, answered=False,
    ),
    "half a value": Grower(
        1_500_000, half(("SET", "k", "v" * 1_600_000)), clients=50, answered=False, purged=True
    ),
    "half of the arguments": Grower(
        1_000_000, half(("DEL", *"k" * 150_000)), clients=15, answered=False, purged=True
    ),
    "unread messages": Grower(
        1_000, each("PUBLISH", "news", "m" * 60_000), UNSUBSCRIBED, (("SUBSCRIBE", "news"),)
    ),
    "unread lines of MONITOR": Grower(1_000, each("SET", "k", "v" * 60_000), (), (("MONITOR",),)),
    "scripts": Grower(
        60_000, each("SCRIPT", "LOAD", "return redis.call('get', 'key#')"), (("SCRIPT", "FLUSH"),),
        purged=True,
    ),
    "large scripts": Grower(
        3_000, each("SCRIPT", "LOAD", f"local x = '{LONG * 100}#' return 1"),
        (("SCRIPT", "FLUSH"),), purged=True,
    ),
}  # fmt: skip


def send(wire: Wire, requests: Iterable[Request], *, answered: bool = True) -> None:
    """Send requests in batches, and check the replies."""
    requests = iter(requests)
    while batch := list(islice(requests, BATCH)):
        encoded = (one if isinstance(one, bytes) else encode(*one) for one in batch)
        wire.socket.sendall(b"".join(encoded))
        for _ in batch if answered else ():
            reply = wire.reply()
            assert not reply.startswith(b"-") or reply.startswith(REFUSED), reply[:200]


def settled(client: redis.Redis, until: Callable[[int], bool]) -> tuple[int, int]:
    """Return the used and the resident memory as soon as the former is as wanted and does not change, or after
    a while."""
    before, ends = 0, time.monotonic() + PATIENCE_S
    while True:
        info = client.info("memory")
        used = info["used_memory"]
        if (until(used) and abs(used - before) < STILL_BYTES) or time.monotonic() > ends:
            return used, info["used_memory_rss"]
        before = used


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(running() != "compiled", reason="the account is that of the compiled package")
@pytest.mark.parametrize("name", GROWERS)
def test_used_memory_grows_as_the_process_does(name: str) -> None:
    # Given a server
    grower = GROWERS[name]
    flags = ("--appendonly", "no", "--save", "", "--slowlog-log-slower-than", "-1",
             "--client-output-buffer-limit", "normal 0 0 0 pubsub 0 0 0")  # fmt: skip
    with ExitStack() as stack:
        server = stack.enter_context(server_process(*flags))
        admin = stack.enter_context(redis.Redis.from_url(server.url))
        clients = stack.enter_context(ExitStack())
        send(clients.enter_context(connected(server.port)), grower.given)
        used_before, taken_before = settled(admin, lambda _: True)
        # When clients make one thing grow
        for _ in range(grower.clients):
            wire = clients.enter_context(connected(server.port))
            send(wire, grower.sent(grower.times), answered=grower.answered)
        used, taken = settled(admin, lambda used: used > used_before + grower.least / 2)
        if grower.purged:  # only now has everything arrived
            admin.memory_purge()
            used, taken = settled(admin, lambda _: True)
        # Then the account grows as the process does, within a tenth
        grown = used - used_before
        assert taken - taken_before > grower.least
        assert grown == pytest.approx(taken - taken_before, rel=0.1)
        # And beyond the limit, commands that need memory are refused
        admin.config_set("maxmemory", used_before + grown // 2)
        with pytest.raises(redis.OutOfMemoryError):
            admin.set("another", "value")
        # And all of it leaves the account when it is freed
        with connected(server.port) as wire:
            send(wire, grower.undo)
        clients.close()
        used, _ = settled(admin, lambda used: used < used_before + grower.least / 20)
        assert used < used_before + grower.least / 20
        assert admin.set("another", "value")
