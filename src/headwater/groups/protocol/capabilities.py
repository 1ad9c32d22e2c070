"""The capabilities of a server: the commands that it has. Workers ask for them once per connection.

There are two levels. Code outside this package need not know which level it uses:

    Headwater       XSETTLE, XRENEW, XRETIRE, and XREADGROUP CLAIM
    Redis, Valkey   claims and settlements in Lua

XREADGROUP CLAIM of Redis 8.4 is not used. Its reply does not name the entry's former owner, so a
released entry cannot be distinguished from one whose owner stopped renewing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Command, Operation, Refused

OLDEST = (7, 0)
"""Oldest supported version of Redis: the first whose XCLAIM drops deleted entries instead of returning nil."""


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a server. ``server`` is its name and version for messages: ``redis 8.2.3``."""

    verbs: bool
    """True if the server has XSETTLE, XRENEW and XRETIRE, and so Headwater's XREADGROUP CLAIM."""
    cluster: bool
    """True if the server is a cluster, where a command or script may touch keys of only one hash slot."""
    server: str
    deletes_acked: bool = False
    """True if the server has XDELEX ACKED, which deletes entries that every group has acknowledged."""


def probe() -> Operation[Capabilities]:
    """Ask the server for its capabilities. This changes nothing.

    Raises `HeadwaterError` if the server is too old.
    """
    replies = yield [
        ["COMMAND", "INFO", "xsettle", "xrenew", "xretire", "xdelex"],
        ["INFO", "server"],
    ]
    info = info_fields(replies[1])
    if isinstance(replies[0], Refused):
        # The user may not run COMMAND. A server that has a command replies that its arguments are missing.
        short: list[Command] = [["XSETTLE"], ["XRENEW"], ["XRETIRE"], ["XDELEX"]]
        answers = yield short
        replies = [[None if "unknown command" in str(one) else [] for one in answers], replies[1]]
    known = [isinstance(one, list | tuple) for one in _list(replies[0])]
    version = info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        raise HeadwaterError(
            f"Redis {version} is too old for workers: they need 7.0 or later. Upgrade it, or run "
            "`headwater serve`."
        )
    named = next(
        (
            f"{name} {info[key]}"
            for name, key in (("headwater", "headwater_version"), ("valkey", "valkey_version"))
            if key in info
        ),
        f"redis {version or '(version unknown)'}",
    )
    return Capabilities(
        verbs=len(known) == 4 and all(known[:3]),
        # Valkey's field is server_mode.
        cluster="cluster" in (info.get("redis_mode"), info.get("server_mode")),
        server=named,
        deletes_acked=len(known) == 4 and known[3],
    )


def _list(reply: Any) -> list[Any]:
    """Return COMMAND INFO's reply as a list; an empty one if the server or an ACL rule refuses it."""
    if isinstance(reply, dict):
        return list(reply.values())
    return reply if isinstance(reply, list) else []


def info_fields(reply: Any) -> dict[str, str]:
    """Return the fields of INFO's reply; an empty dict if the server refuses it.

    >>> info_fields(b"# Server\\r\\nredis_version:8.2.3\\r\\n")
    {'redis_version': '8.2.3'}
    """
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").split("\r\n"))
    return {name: value for name, colon, value in lines if colon}
