"""Handles on the embedded stores of this process. The first handle opens a store. Closing the last closes it.

Rule 1. A process opens a directory once, and all its clients share the store. Closing the last handle
        closes the store. At the end of the process all open stores are closed.
Rule 2. A forked child starts without stores, because it must not use those of its parent.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from headwater.client.embedded_store import EmbeddedStore, Transport
from headwater.client.reentrancy import REENTRANCY_GUARD, run_outside
from headwater.errors import StoreClosed
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

log = logging.getLogger("headwater.client")


class _Shared:
    """A slot for a store that several clients of this process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while the store is opened or closed, and while its handles are counted."""
        self.store: EmbeddedStore | None = None


class StoreHandle:
    """One client's use of a store, from `open_handle` or `handle_of` until `close`."""

    def __init__(self, store: EmbeddedStore, shared: _Shared) -> None:
        self.store = store
        self._shared = shared
        self._closed = False
        store.users += 1

    def __repr__(self) -> str:
        return repr(self.store)

    def check(self) -> None:
        """Raise `ForkedStore`, or `StoreClosed` if this handle or the store was closed."""
        if self._closed:
            raise StoreClosed(f"this client of {self.store.address} was closed. Connect again.")
        self.store.check()

    def connect(self, transport: Transport) -> Session:
        """Open a session. Raises what `check` raises."""
        self.check()
        return self.store.connect(transport)

    def close(self) -> None:
        """Close the handle, and the store if this is its last handle. A second call does nothing.

        Raises `NodePoisoned` if the journal's last writes fail.
        """
        if not self._closed:
            self._closed = True
            run_outside(self._close)

    def _close(self) -> None:
        store, shared = self.store, self._shared
        if not store.here:
            return
        with REENTRANCY_GUARD, shared.lock:
            store.users -= 1
            if store.users:
                return
            if shared.store is store:
                shared.store = None
            _open.discard(store)
            store.close("its last client was closed")


_shared_by_key: dict[str, _Shared] = {}
_shared_by_node: WeakValueDictionary[int, _Shared] = WeakValueDictionary()
_open: set[EmbeddedStore] = set()
"""The stores to close at the end of the process."""


def open_handle(key: str | None, make: Callable[[], EmbeddedStore]) -> StoreHandle:
    """Return a handle on the store of ``key``. ``make`` opens the store if it is not open. If ``key`` is
    None, ``make`` always opens a new store.

    Raises what ``make`` raises.
    """
    shared = _Shared() if key is None else _shared_by_key.setdefault(key, _Shared())
    with REENTRANCY_GUARD, shared.lock:
        if shared.store is None or shared.store.closed:
            shared.store = make()
            _open.add(shared.store)
        return StoreHandle(shared.store, shared)


def handle_of(node: Node) -> StoreHandle:
    """Return a handle on a node that the caller has made and will close."""
    shared = _shared_by_node.setdefault(id(node), _Shared())
    with REENTRANCY_GUARD, shared.lock:
        if shared.store is None or shared.store.closed or shared.store.node is not node:
            shared.store = EmbeddedStore(node, address="headwater://node", owned=False)
        return StoreHandle(shared.store, shared)


def _close_all() -> None:
    """Close the stores that are still open at the end of the process."""
    for store in list(_open):
        try:
            store.close("the process ends")
        except Exception:
            log.exception("%s could not be closed cleanly", store.address)


def _forget_after_fork() -> None:
    _shared_by_key.clear()
    _shared_by_node.clear()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
