"""Asyncio connections pack commands with hiredis, to the same bytes as redis-py."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import DataError

from headwater.client.aio.guarded import guarded


class Word(StrEnum):
    ACK = "ACK"


COMMANDS: list[tuple[Any, ...]] = [
    (b"PING",),
    ("PING",),
    ("XACK", "s", "g", b"1-0", b"1-1"),
    (b"XSETTLE", "s", "g", "c", Word.ACK, "IDS", 1, b"1-0"),
    ("CONFIG GET", "maxmemory"),
    (b"CLIENT ID",),
    ("SET", "schlüssel", "ünïcode"),
    ("SET", "k", 1.5),
    ("SET", "k", -17),
    ("SET", "k", bytearray(b"abc")),
    ("SET", "k", memoryview(b"abc")),
    ("SET", "k", b"x" * 10_000),
    ("SET", "", ""),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[str(n) for n in range(len(COMMANDS))])
@pytest.mark.parametrize("options", [{}, {"encoding": "latin-1"}], ids=["utf-8", "latin-1"])
def test_the_bytes_of_a_command_are_those_of_redis_py(
    command: tuple[Any, ...], options: dict[str, Any]
) -> None:
    theirs = redis.asyncio.Connection(**options).pack_command(*command)
    ours = guarded(redis.asyncio.Connection)(**options).pack_command(*command)
    assert b"".join(ours) == b"".join(theirs)


@pytest.mark.parametrize("value", [None, True, object(), [1]])
def test_values_that_redis_py_refuses_are_refused(value: Any) -> None:
    connection = guarded(redis.asyncio.Connection)()
    with pytest.raises(DataError):
        connection.pack_command("SET", "k", value)
