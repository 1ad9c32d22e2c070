"""What the server at the other end can do, asked once per connection.

Three levels; nothing above this package knows which one it talks to:

    Headwater's verbs    XSETTLE, XRENEW, XRETIRE, and XREADGROUP CLAIM
    Redis 8.4 and later  XREADGROUP CLAIM (and XNACK from 8.8); settlements in Lua
    Redis 7.0, Valkey    claims and settlements in Lua
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.errors import HeadwaterError
from headwater.groups.operation import Operation, Refused
from headwater.messages import beside

OLDEST = (7, 0)
"""Redis 7.0 is the first whose XCLAIM drops deleted entries instead of returning nil."""


@dataclass(frozen=True)
class Capabilities:
    """What was found. ``server`` is for people: ``redis 8.2.3``."""

    verbs: bool
    """XSETTLE, XRENEW and XRETIRE."""
    claim: bool
    """XREADGROUP … CLAIM."""
    nack: bool
    """XNACK."""
    cluster: bool
    """A step may touch keys of one hash slot only."""
    server: str


def probe(stream: str) -> Operation[Capabilities]:
    """Ask the server what it can do. Changes nothing.

    Raises `HeadwaterError` for a server that is too old.
    """
    missing = beside(stream, ":hw:probe")
    replies = yield [
        ["COMMAND", "INFO", "xsettle", "xrenew", "xretire", "xnack"],
        ["XREADGROUP", "GROUP", "hw", "hw", "CLAIM", 0, "STREAMS", missing, ">"],
        ["INFO", "server"],
    ]
    known = [isinstance(one, list | tuple) for one in _list(replies[0])]
    known += [False] * (4 - len(known))
    info = _info(replies[2])
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
        verbs=all(known[:3]),
        # A server that knows CLAIM gets as far as looking for the key.
        claim=not isinstance(replies[1], Refused) or replies[1].code in ("NOGROUP", "WRONGTYPE"),
        nack=known[3],
        # Valkey calls it server_mode.
        cluster="cluster" in (info.get("redis_mode"), info.get("server_mode")),
        server=named,
    )


def _list(reply: Any) -> list[Any]:
    """COMMAND INFO's reply; a server or an ACL that refuses it knows none of our verbs."""
    if isinstance(reply, dict):
        return list(reply.values())
    return reply if isinstance(reply, list) else []


def _info(reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
