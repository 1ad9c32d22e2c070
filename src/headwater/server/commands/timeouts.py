"""Times that a command may wait, as arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

if TYPE_CHECKING:
    from headwater.server.node import Node

_MAX_MS = 2**63 - 1


def milliseconds(arguments: Arguments, index: int, node: Node) -> int:
    """A timeout in whole milliseconds, with Redis's errors (timeout.c, getTimeoutFromObject)."""
    value = arguments.integer(index, error="ERR timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("ERR timeout is negative")
    if value > _MAX_MS - node.clock.now_ms():
        raise CommandError("ERR timeout is out of range")
    return value
