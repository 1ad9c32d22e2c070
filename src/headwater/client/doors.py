"""Who uses which store of this process, and when it is opened and closed.

Rule 1. A directory is opened once in a process, whoever asks; the last `Door` that is left closes
        it, and the end of the process closes what is open then.
Rule 2. A child of a fork starts with none: what its parent opened is not its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from headwater.client.stores import Store, Transport
from headwater.client.turns import INSIDE, between_turns
from headwater.errors import StoreClosed
from headwater.server.node import Node
from headwater.server.session import Session

log = logging.getLogger("headwater.client")


class _Place:
    """Where clients of this process find the same store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while the store is opened or closed, and while its users are counted."""
        self.store: Store | None = None


class Door:
    """One client's use of a store, from `open_door` or `door_to` until `leave`."""

    def __init__(self, store: Store, place: _Place) -> None:
        self.store = store
        self._place = place
        self._left = False
        store.users += 1

    def __repr__(self) -> str:
        return repr(self.store)

    def check(self) -> None:
        """Raises `ForkedStore`, or `StoreClosed` once this door was left or the store closed."""
        if self._left:
            raise StoreClosed(f"this client of {self.store.address} was closed. Connect again.")
        self.store.check()

    def connect(self, transport: Transport) -> Session:
        """A new session. Raises what `check` raises."""
        self.check()
        return self.store.connect(transport)

    def leave(self) -> None:
        """The client is done; the last one closes the store. Leaving twice does nothing.

        Raises `NodePoisoned` when the journal's last writes fail.
        """
        if not self._left:
            self._left = True
            between_turns(self._leave)

    def _leave(self) -> None:
        store, place = self.store, self._place
        if not store.here:
            return
        with INSIDE, place.lock:
            store.users -= 1
            if store.users:
                return
            if place.store is store:
                place.store = None
            _open.discard(store)
            store.close("its last client was closed")


_places: dict[str, _Place] = {}
_node_places: WeakValueDictionary[int, _Place] = WeakValueDictionary()
_open: set[Store] = set()
"""What the end of the process has to close."""


def open_door(key: str | None, make: Callable[[], Store]) -> Door:
    """A door to the store of that key, which ``make`` opens when nobody has; None: one of its own.

    Raises what ``make`` raises.
    """
    place = _Place() if key is None else _places.setdefault(key, _Place())
    with INSIDE, place.lock:
        if place.store is None or place.store.closed:
            place.store = make()
            _open.add(place.store)
        return Door(place.store, place)


def door_to(node: Node) -> Door:
    """A door to a node that somebody else made and will close."""
    place = _node_places.setdefault(id(node), _Place())
    with INSIDE, place.lock:
        if place.store is None or place.store.closed or place.store.node is not node:
            place.store = Store(node, address="headwater://node", owned=False)
        return Door(place.store, place)


def _close_all() -> None:
    """The process ends: what was not closed gets its clean end."""
    for store in list(_open):
        try:
            store.close("the process ends")
        except Exception:
            log.exception("%s could not be ended cleanly", store.address)


def _forget_after_fork() -> None:
    _places.clear()
    _node_places.clear()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
