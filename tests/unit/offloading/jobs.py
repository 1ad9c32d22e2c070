"""Helpers for tests of offloaded jobs, in an embedded store.

The client is of kind ``tcp``, because an embedded client runs its jobs itself. `settled` waits for the
thread and then calls the node's tick, as a server's driver does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.common.steps import Steps
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Reply, Simple

ENTRIES = 3000
OK = Simple(b"OK")
BUSY = Failure(b"BUSYKEY Target key name already exists.")


def fill(client: LocalClient, key: str = "s", entries: int = ENTRIES) -> None:
    """Create a stream with a group in which ten consumers own two thirds of the entries."""
    for number in range(1, entries + 1):
        client.send("XADD", key, f"{number}-0", "field", number, "user", f"u{number % 97}")
    client.send("XGROUP", "CREATE", key, "g", "0")
    for at in range(20):
        read = ("COUNT", entries // 30, "STREAMS", key, ">")
        client.send("XREADGROUP", "GROUP", "g", f"c{at % 10}", *read)
    client.session.output.take_bytes()
    while client.reply() is not None:
        pass


def dumped(store: LocalStore, key: str = "s") -> bytes:
    """Return the payload, dumped immediately by an embedded client."""
    payload = store.client()("DUMP", key)
    assert isinstance(payload, bytes)
    return payload


def shown(store: LocalStore, key: str) -> Reply:
    return store.client()("XINFO", "STREAM", key, "FULL", "COUNT", 0)


def settled(store: LocalStore, client: LocalClient) -> Reply:
    """Wait for the job of ``client`` and return its reply."""
    while client.session in store.node.blocked.offloading:
        join(store)
        store.node.tick()
    found = client.reply()
    assert found is not None
    return found


def join(store: LocalStore) -> None:
    """Wait until the thread has done all of its queue."""
    store.node.blocked.offloading.wait_until_idle()


def reach_build(store: LocalStore) -> None:
    """Wait until the payload is read. The node requests the build of its value next."""
    join(store)
    store.node.tick()


@contextmanager
def paused(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> Iterator[None]:
    """Delay the steps of a job until the end of the block."""
    go_on = threading.Event()
    steps = getattr(module, name)

    def wait_first(*values: object) -> Steps[object]:
        go_on.wait()
        yield
        return (yield from steps(*values))

    monkeypatch.setattr(module, name, wait_first)
    try:
        yield
    finally:
        go_on.set()
        monkeypatch.setattr(module, name, steps)
