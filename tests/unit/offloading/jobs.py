"""Jobs off the loop in a store in this process: what their tests share.

The client is of kind ``tcp``: an embedded one does its jobs itself. `settled` waits for the thread, then
gives the node the tick that the driver of a server gives it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.steps import Steps
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Reply, Simple

ENTRIES = 3000
OK = Simple(b"OK")
BUSY = Failure(b"BUSYKEY Target key name already exists.")


def fill(client: LocalClient, key: str = "s", entries: int = ENTRIES) -> None:
    """A stream with a group; two thirds of its entries are pending, of ten consumers."""
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
    """The payload, made by an embedded client on the spot."""
    payload = store.client()("DUMP", key)
    assert isinstance(payload, bytes)
    return payload


def shown(store: LocalStore, key: str) -> Reply:
    return store.client()("XINFO", "STREAM", key, "FULL", "COUNT", 0)


def settled(store: LocalStore, client: LocalClient) -> Reply:
    """The reply of the client that waits for a job."""
    while client.session in store.node.blocked.offloading:
        join(store)
        store.node.tick()
    found = client.reply()
    assert found is not None
    return found


def join(store: LocalStore) -> None:
    """Wait until the thread has done all that is in its line."""
    store.node.blocked.offloading.rest()


def reach_build(store: LocalStore) -> None:
    """Let the payload be read; the node has its value built next."""
    join(store)
    store.node.tick()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> Iterator[None]:
    """The steps of a job do not begin before the end of this block."""
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
