"""Reads known_differences.toml: where Headwater differs from a real server on purpose.

Every difference names the servers that it applies to, and the reason. A difference that does not
differ any more fails the run, so the list stays up to date.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.testing.replies import Map, Reply
from tests import peers

PATH = Path(__file__).parent / "known_differences.toml"


class Difference(NamedTuple):
    """A known difference. ``name`` is the tag of lines in cases (``@name``), the name of a reply
    field that only Headwater has, or a word in descriptions of users that only one of the two
    has."""

    name: str
    servers: tuple[str, ...]
    reason: str


def _read(kind: str) -> dict[str, Difference]:
    rows = tomllib.loads(PATH.read_text(encoding="utf-8")).get(kind, [])
    found = [Difference(**{**row, "servers": tuple(row["servers"])}) for row in rows]
    assert all(set(one.servers) <= set(peers.PEERS) and one.reason for one in found)
    assert len({one.name for one in found}) == len(found), f"two {kind}s of one name"
    return {one.name: one for one in found}


LINES = _read("line")
FIELDS = _read("field")
VALUES = _read("value")
WORDS = _read("word")
NUMBERS = _read("number")


def hidden_fields(server: str) -> frozenset[bytes]:
    """Return the reply fields that are not compared with ``server``."""
    hidden = (*FIELDS.values(), *WORDS.values())
    return frozenset(one.name.encode() for one in hidden if server in one.servers)


def unlike_fields(server: str) -> frozenset[bytes]:
    """Return the fields that random histories do not compare. Written cases show where they differ."""
    return frozenset(one.name.encode() for one in VALUES.values() if server in one.servers)


def pairs(reply: Reply) -> Iterator[tuple[Reply, Reply]]:
    """Yield every name and value of every map in a RESP3 reply."""
    if isinstance(reply, Map):
        for name, value in reply.pairs:
            yield name, value
            yield from pairs(value)
    elif isinstance(reply, list):
        for item in reply:
            yield from pairs(item)


def values(reply: Reply, name: str) -> list[Reply]:
    """Return all values with this name, at any depth, in the reply's order."""
    return [value for found, value in pairs(reply) if found == name.encode()]
