"""What clients cause is logged here, so that no client can fill the disk with log lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headwater.log_limit import LimitedLog

if TYPE_CHECKING:
    from headwater.server.turn.node import Node

_logs: WeakKeyDictionary[Node, LimitedLog] = WeakKeyDictionary()


def client_log_of(node: Node) -> LimitedLog:
    """The log of a node's clients, made when it is first needed."""
    found = _logs.get(node)
    if found is None:
        logger = logging.getLogger("headwater.server")
        found = _logs[node] = LimitedLog(logger, monotonic=node.clock.monotonic)
    return found
