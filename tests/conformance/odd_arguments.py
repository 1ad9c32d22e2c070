"""Runs every command with each argument replaced by every unusual value, on a node in this process.

After each request the node must work and every reply must be valid. After each command all
invariants must hold, and the journal must restore the same state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.server.session.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalClient, LocalStore
from tests.conformance.fuzzing import ODD, START_MS, Failure, fill, read_all
from tests.conformance.usages import names, usages
from tests.property.state import picture

LEFT_OUT = frozenset({b"SHUTDOWN", b"DEBUG", b"CLIENT|PAUSE", b"CONFIG|SET", b"MONITOR"})
"""Commands that stop or pause the node, or change its settings. Each has its own tests."""

MORE = (
    *(b"1_000", b"\xef\xbc\x91", b"0b1", b"1\n", b"\t1", b"1e400", b"-nan", b"1E5", b".5", b"5."),
    *(b"-9223372036854775809", b"9223372036854775806", b"-18446744073709551616", b"1" * 21),
    *(b"18446744073709551614-18446744073709551615", b"0-18446744073709551616", b"1--1", b"-1-0"),
    *(b"1-18446744073709551615", b"9223372036854775808-0", b"1-1 ", b"1-+1", b"01-01", b"1-*x"),
    *("\u2603".encode(), "\U0001f600".encode(), b"\xed\xa0\x80", b"\x7f", b"\n", b"\r", b"'", b'"'),
    *(b"s", b"t", b"string", b"g", b"COUNT", b"count", b"STREAMS", b"x" * 100_000, b"\x00" * 5000),
)
VALUES = (*ODD, *MORE)
FEW = (b"", b"\x00", b"a\r\nb", b"-1", b"1.5", b"9" * 5000, b"x" * 100_000, b"1_000", b"string",
       b"18446744073709551616", b"-9223372036854775808", b"18446744073709551615-18446744073709551615")  # fmt: skip
"""A selection of the values, for quick runs."""

Request = tuple[bytes, ...]


class Sweep:
    """A run over all commands. ``failures`` has the failures, ``requests`` the number of requests."""

    def __init__(self, values: Sequence[bytes] = VALUES) -> None:
        self.values = values
        self.requests = 0
        self.failures: list[Failure] = []

    def all(self) -> None:
        """Test every command of the table."""
        for name in names():
            if name not in LEFT_OUT:
                self.command(name)

    def command(self, name: bytes) -> None:
        """Test one command, until its first failure."""
        store = LocalStore(clock=ManualClock(START_MS), config=Config(port=0))
        client = store.client()
        for usage in usages(name):
            for at in range(1, len(usage) + 1):
                store.client()("FLUSHALL")
                fill(store.client())
                for words in self._odd(usage, at):
                    client = client if _as_new(client.session) else _another(client, store)
                    if not self._put(store, client, words):
                        return
        self._look_through(store, name)

    def _odd(self, usage: Request, at: int) -> Iterator[Request]:
        """Yield requests with an argument replaced, omitted or repeated, or all later ones omitted."""
        for value in self.values if at < len(usage) else ():
            yield (*usage[:at], value, *usage[at + 1 :])
        yield usage[:at]
        yield usage[:at] + usage[at + 1 :]
        yield usage[:at] + usage[at - 1 :]

    def _put(self, store: LocalStore, client: LocalClient, words: Request) -> bool:
        self.requests += 1
        try:
            client.send(*words)
            if client.session.blocked:
                store.node.blocked.unblock(client.session, error=False)
                store.node.tick()
            read_all(client)
        except Exception as error:
            shown = " ".join(repr(word)[1:80] for word in words)
            self.failures.append(Failure(0, f"{shown}: {error!r}"))
            return False
        return True

    def _look_through(self, store: LocalStore, name: bytes) -> None:
        broken = broken_invariants(store.node.keyspace)
        if broken:
            self.failures.append(Failure(0, f"after {name.decode()}: {broken[:3]}"))
            return
        store.node.tick()
        before = picture(store.node.keyspace)
        store.node.close()
        store.crash()
        if picture(store.node.keyspace) != before:
            what = f"after {name.decode()}: the journal restores a different state"
            self.failures.append(Failure(0, what))


def _as_new(session: Session) -> bool:
    """Return whether the client is in its initial state."""
    return not (
        session.closing
        or session.closed
        or session.blocked
        or session.transaction.queue is not None
        or session.subscriptions.active
        or session.reply_mode != "on"
        or session.db_index
    )


def _another(client: LocalClient, store: LocalStore) -> LocalClient:
    client.close()
    return store.client(resp=5 - client.session.resp)
