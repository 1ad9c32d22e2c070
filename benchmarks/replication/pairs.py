"""A primary and its replica of one kind: the primary on the server's core, the replica on the other one, with the client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from benchmarks.storage.servers import Unmeasured, available, configure
from benchmarks.stores import Kind, Store, cores, durability, running

WITHIN_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.001

FSYNC: Final = "everysec"


class Pair(NamedTuple):
    """A primary, and the server that follows it."""

    primary: Store
    replica: Store

    @property
    def name(self) -> str:
        """The name of the stores in the tables."""
        return self.primary.name

    def settle(self) -> None:
        """Wait until the replica has everything, and both are idle."""
        wait_for_offset(self.primary, self.replica)
        self.primary.wait_idle()
        self.replica.wait_idle()

    def empty(self) -> None:
        """Delete all keys of both."""
        with self.primary.client() as client:
            client.flushall()
        self.settle()


def replication(store: Store) -> dict[str, Any]:
    """Return what INFO says about replication."""
    with store.client() as client:
        found: dict[str, Any] = client.info("replication")
        return found


def wait_for_offset(primary: Store, replica: Store) -> None:
    """Wait until the replica has what the primary has now. Raises `Unmeasured` if it does not get it."""
    offset = replication(primary)["master_repl_offset"]
    deadline = time.monotonic() + WITHIN_SECONDS
    while replication(replica)["slave_repl_offset"] < offset:
        if time.monotonic() > deadline:
            raise Unmeasured(f"{replica.name}: the replica does not reach offset {offset}")
        time.sleep(POLL_SECONDS)


def follow(primary: Store, replica: Store) -> float:
    """Make one store a replica of the other. Return the seconds until the link is up. Raises `Unmeasured`."""
    began = time.perf_counter()
    with replica.client() as client:
        client.execute_command("REPLICAOF", primary.host, primary.port)
        while client.info("replication")["master_link_status"] != "up":
            if time.perf_counter() > began + WITHIN_SECONDS:
                raise Unmeasured(f"{replica.name}: the link to the primary does not come up")
            time.sleep(POLL_SECONDS)
    return time.perf_counter() - began


def arguments(kind: Kind) -> list[str]:
    """Return the arguments of a server: a peer sends its copy at once, as Headwater does, not five seconds later."""
    words = durability(FSYNC, peer=kind.peer is not None)
    return words if kind.peer is None else [*words, "--repl-diskless-sync-delay", "0"]


@contextmanager
def replica_of(primary: Store, kind: Kind) -> Iterator[Store]:
    """Run a server on the client's core that follows nobody yet."""
    with running(kind, *arguments(kind), server_cores={cores()[1]}) as replica:
        yield replica


@contextmanager
def pairs(settings: Sequence[tuple[str, str]] = ()) -> Iterator[list[Pair]]:
    """Run a primary with a replica of each available kind. ``settings`` are those of Headwater's primaries."""
    with ExitStack() as stack:
        found = []
        for kind in available():
            primary = stack.enter_context(running(kind, *arguments(kind)))
            replica = stack.enter_context(replica_of(primary, kind))
            follow(primary, replica)
            if kind.peer is None:
                configure(primary, settings)
            found.append(Pair(primary, replica))
        yield found
