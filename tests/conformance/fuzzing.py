"""Malformed requests: unusual arguments for every command, and corrupted bytes.

After each, the store must work, every reply must be valid, and no bytes may be left after the
replies. After some hundreds, all invariants must hold and the journal must restore the same state.
A seed determines the requests, for the same table of commands.
"""

from __future__ import annotations

import time
from random import Random
from typing import NamedTuple

from headwater.commands.table import COMMANDS
from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalClient, LocalStore, request
from tests.conformance.histories import History
from tests.conformance.usages import names, usages
from tests.property.state import picture

START_MS = 1_700_000_000_000
ROUND = 400
"""Requests to a store before it is checked and a new one is created."""

KEYS = [b"s", b"t", b"string", b"list", b"set", b"hash", b"missing", b"", b"\x00\xff"]

ODD = [
    *(b"", b"0", b"-1", b"1", b"+1", b" 1", b"1 ", b"01", b"-0", b"2", b"10", b"1.5", b"1e5", b"nan"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-" * 3),
    *(b"18446744073709551615", b"18446744073709551616", b"4294967296", b"2147483648", b"65536"),
    *(b"9" * 5000, b"-" + b"9" * 5000, b"inf", b"0x10", b"\xb2", b"\xd9\xa1"),
    *(b"0-0", b"0-1", b"1-1", b"5-*", b"*", b"-", b"+", b"$", b">", b"(", b"(1-1", b"(+", b"1-", b"-1-1"),
    *(b"18446744073709551615-18446744073709551615", b"18446744073709551616-0", b"5\x00-1", b"1-1-1"),
    *(b"\x00", b"\xff\xfe", b"a\r\nb", b"\r\n", b"x" * 300, b"[a-", b"[^", b"\\", b"*" * 60 + b"b", b"?"),
]  # fmt: skip

WORDS = b"""
MAXLEN MINID ~ = LIMIT NOMKSTREAM KEEPREF DELREF ACKED IDMP IDMPAUTO COUNT BLOCK STREAMS GROUP NOACK
CLAIM MAXCOUNT MAXSIZE FORCE JUSTID LASTID IDLE TIME RETRYCOUNT IDS SILENT FAIL FATAL ACK ACKDEL DELAY
TO FIELDS MKSTREAM ENTRIESREAD ENTRIESADDED MAXDELETEDID FULL EX PX EXAT PXAT NX XX GT LT GET KEEPTTL
REPLACE DB ABSTTL FREQ IDLETIME MATCH TYPE ASYNC SYNC IDMP-DURATION IDMP-MAXSIZE ID ADDR LADDR USER
SKIPME MAXAGE NORMAL PUBSUB ON OFF YES NO RESET AUTH SETNAME LIB-NAME LIB-VER TIMEOUT ERROR FILTERBY
ACLCAT PATTERN MODULE LEFT RIGHT SAMPLES
""".split()

LEFT_OUT = frozenset(
    b"""
    SHUTDOWN DEBUG CLIENT|PAUSE CLIENT|REPLY CLIENT|KILL QUIT RESET SELECT SWAPDB MOVE MONITOR
    SUBSCRIBE PSUBSCRIBE SSUBSCRIBE CONFIG|SET CONFIG|REWRITE ACL|SETUSER ACL|DELUSER ACL|LOAD ACL|SAVE
    AUTH HELLO EVAL EVALSHA BLPOP BRPOP WAITAOF
    """.split()
)
"""Commands that end the connection, change its protocol, or wait. Each has its own tests."""


class Failure(NamedTuple):
    """What failed, and the seed that repeats it."""

    seed: int
    what: str


class Fuzz:
    """A campaign. `rounds` runs until the time is over; `requests` counts."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.requests = 0
        self.failures: list[Failure] = []
        self._names = [name for name in names() if name not in LEFT_OUT]

    def rounds(self, seconds: float) -> None:
        """Run rounds of both kinds, with increasing seeds, for ``seconds`` or until one fails."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.failures:
            self.arguments_round()
            self.bytes_round()
            self.seed += 1

    # --- unusual arguments ----------------------------------------------------------------------

    def arguments_round(self) -> None:
        """Run whole requests with unusual arguments."""
        random = Random(f"arguments {self.seed}")
        store = LocalStore(clock=ManualClock(START_MS), config=Config(port=0))
        client = _filled(store)
        likely = iter(History(self.seed, "redis-8.2").commands(2 * ROUND))
        for _ in range(ROUND):
            draw = random.random()
            if draw < 0.4:
                words = self._odd(random)
            elif draw < 0.7:
                words = _corrupted(random, random.choice(usages(random.choice(self._names))))
            else:
                words = _corrupted(random, next(likely))
            self.requests += 1
            try:
                client.send(*words)
                if client.session.blocked:
                    store.node.blocked.unblock(client.session, error=False)
                    store.node.tick()
                read_all(client)
            except Exception as error:
                self._failed(f"{words!r}"[:2000], error)
                return
        self._look_through(store, "after odd arguments")

    def _odd(self, random: Random) -> tuple[bytes, ...]:
        """Return a command of the table with arguments drawn from all pools."""
        name = random.choice(self._names)
        container, _, sub = name.partition(b"|")
        row = COMMANDS[container].subcommands[sub] if sub else COMMANDS[container]
        words = [container, sub] if sub else [container]
        wanted = abs(row.arity) + (random.randrange(6) if row.arity < 0 else 0)
        if random.random() < 0.05:
            wanted = random.randrange(8)
        while len(words) < wanted:
            pool = random.choice((KEYS, KEYS, ODD, ODD, WORDS))
            words.append(random.choice(pool))
        return tuple(words)

    # --- bytes ----------------------------------------------------------------------------------

    def bytes_round(self) -> None:
        """Run a pipeline with corrupted bytes, in pieces of any size."""
        random = Random(f"bytes {self.seed}")
        store = LocalStore(clock=ManualClock(START_MS), config=Config(port=0))
        client = _filled(store)
        likely = History(self.seed, "redis-8.2").commands(ROUND)
        for start in range(0, ROUND, 8):
            data = corrupt(random, b"".join(request(words) for words in likely[start : start + 8]))
            self.requests += 8
            try:
                while data and not client.session.closing:
                    size = random.choice((1, 3, 40, 4000))
                    client.session.feed(data[:size])
                    data = data[size:]
                    store.node.turn([client.session])
                read_all(client)
            except Exception as error:
                self._failed(f"bytes from {start}", error)
                return
            if client.session.closing or client.session.blocked or random.random() < 0.3:
                client.close()
                client = store.client()
        self._look_through(store, "after corrupted bytes")

    # --- checks ---------------------------------------------------------------------------------

    def _look_through(self, store: LocalStore, when: str) -> None:
        broken = broken_invariants(store.node.keyspace)
        if broken:
            self.failures.append(Failure(self.seed, f"{when}: {broken[:3]}"))
            return
        store.node.tick()
        before = picture(store.node.keyspace)
        store.node.close()
        store.crash()
        if picture(store.node.keyspace) != before:
            self.failures.append(
                Failure(self.seed, f"{when}: the journal restores a different state")
            )

    def _failed(self, where: str, error: Exception) -> None:
        self.failures.append(Failure(self.seed, f"{where}: {error!r}"))


def read_all(client: LocalClient) -> None:
    """Read all replies. No bytes may be left after them."""
    while client.reply() is not None:
        pass
    left = bytes(client._reader.buffer)
    assert not left, f"half a reply: {left[:80]!r}"


def _filled(store: LocalStore) -> LocalClient:
    """Return a client of a store that has a key of each type."""
    client = store.client(resp=3)
    fill(client)
    return client


def fill(client: LocalClient) -> None:
    """Create a key of each type in an empty store."""
    for words in (
        (b"XADD", b"s", b"1-1", b"a", b"b"),
        (b"XGROUP", b"CREATE", b"s", b"g", b"0"),
        (b"XREADGROUP", b"GROUP", b"g", b"a", b"STREAMS", b"s", b">"),
        (b"XADD", b"t", b"5-1", b"a", b"b"),
        (b"SET", b"string", b"10"),
        (b"HSET", b"hash", b"f", b"v"),
        *((name, key, b"v") for name, key in ((b"RPUSH", b"list"), (b"SADD", b"set"))),
    ):
        client(*words)


def _corrupted(random: Random, words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return a valid command with one to three of its words changed, removed, repeated or exchanged."""
    found = list(words)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = random.randrange(len(found))
        what = random.randrange(6)
        if what == 0 and len(found) > 1:
            del found[at]
        elif what == 1:
            found.insert(at, random.choice(WORDS))
        elif what == 2:
            found.append(random.choice(ODD))
        elif what == 3 and at:
            found[at] = random.choice(KEYS)
        elif at:
            found[at] = random.choice(ODD)
    return tuple(found)


def corrupt(random: Random, data: bytes) -> bytes:
    """Return ``data`` with some bytes changed, removed or repeated, or with a wrong length."""
    found = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        at = random.randrange(len(found))
        what = random.randrange(6)
        if what == 0:
            found[at] = random.randrange(256)
        elif what == 1:
            del found[at : at + random.choice((1, 2, 10, 100))]
        elif what == 2:
            found[at:at] = random.choice(ODD)
        elif what == 3:
            found[at:at] = found[at : at + random.choice((1, 10, 100))]
        else:
            header = found.find(random.choice((b"$", b"*")), at)
            end = found.find(b"\r\n", header)
            if 0 <= header < end:
                found[header + 1 : end] = random.choice(ODD)
        if not found:
            break
    return bytes(found)
