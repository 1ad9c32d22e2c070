"""What docs/guide/server.md says of keys and values is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.commands.table import COMMANDS
from headwater.testing.server import server_thread

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "server.md").read_text(encoding="utf-8")
SECTION = GUIDE.partition("## Keys and the other types\n")[2].partition("\n## ")[0]
GROUPS = {"generic", "string", "list", "set", "hash"}
OTHERS = {"DBSIZE", "SWAPDB", "FLUSHDB", "FLUSHALL"}
"""Of the group *server*, and yet about keys."""
ABOUT_NO_KEY = {"WAIT", "WAITAOF"}


@pytest.fixture
def client() -> Iterator[Any]:
    with server_thread() as server, redis.Redis.from_url(server.url) as made:
        yield made


def test_it_names_every_command_on_keys_and_values_and_no_other() -> None:
    there = {row.name.upper() for row in COMMANDS.values() if row.group in GROUPS} | OTHERS
    assert set(re.findall(r"`([A-Z]+)`", SECTION)) == there - ABOUT_NO_KEY


def test_its_example_runs(client: Any) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    exec(program, {"client": client})  # the guide is ours
    assert client.xlen("orders:old") == 1


def test_an_idle_time_and_an_encoding_are_told(client: Any) -> None:
    client.rpush("l", "a")
    assert client.object("ENCODING", "l") == b"listpack"
    assert client.object("IDLETIME", "l") == 0
    with pytest.raises(redis.ResponseError, match="LFU"):
        client.object("FREQ", "l")
