"""`headwater journal dump` says which key of which database each change concerned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headwater.testing.server import ServerProcess, server_process

pytestmark = pytest.mark.slow

Run = Callable[..., str]

Shown = tuple[str, int | None, str | None, str, list[str]]
"""What, database, key, group and ids."""

CHANGES: list[tuple[str, int, Shown | None]] = [
    # command, database, what is shown
    ("SET text x", 0, ("string set", 0, "text", "", [])),
    ("SETRANGE text 1 y", 0, ("string written", 0, "text", "", [])),
    ("EXPIRE text 1000", 3, None),
    ("HSET hash f v", 3, ("hash set", 3, "hash", "", [])),
    ("HDEL hash f", 3, ("hash fields deleted", 3, "hash", "", [])),
    ("RPUSH list a b c", 3, ("list pushed", 3, "list", "", [])),
    ("LPOP list", 3, ("list popped", 3, "list", "", [])),
    ("LSET list 0 z", 3, ("list element set", 3, "list", "", [])),
    ("SADD set a", 3, ("set members added", 3, "set", "", [])),
    ("EXPIRE list 1000", 3, ("expiry set", 3, "list", "", [])),
    ("RENAME list other", 3, ("key renamed", 3, "list", "", [])),
    ("COPY other copy", 3, ("key copied", 3, "other", "", [])),
    ("DEL copy", 3, ("key deleted", 3, "copy", "", [])),
    ("XADD s 1-1 n 1", 3, ("appended", 3, "s", "", [])),
    ("XADD s 2-1 n 2", 3, ("appended", 3, "s", "", [])),
    ("XADD s 3-1 n 3", 3, ("appended", 3, "s", "", [])),
    ("XGROUP CREATE s g 0", 3, ("group created", 3, "s", "", [])),
    ("XGROUP CREATECONSUMER s g one", 3, ("consumer created", 3, "s", "g", [])),
    ("XREADGROUP GROUP g one COUNT 1 STREAMS s >", 3, ("delivered", 3, "s", "g", [])),
    ("XACK s g 1-1", 3, ("acknowledged", 3, "s", "g", [])),
    ("XDEL s 1-1 3-1", 3, ("deleted", 3, "s", "", ["1-1", "3-1"])),
    ("XTRIM s MAXLEN 0", 3, ("trimmed", 3, "s", "", ["3-1"])),
    ("XGROUP DESTROY s g", 3, ("group destroyed", 3, "s", "g", [])),
    ("DEL s", 3, ("key deleted", 3, "s", "", [])),
    ("SWAPDB 3 4", 0, ("databases swapped", 3, None, "", [])),
    ("FLUSHDB", 4, ("flushed", 4, None, "", [])),
    ("FLUSHALL", 0, ("flushed", None, None, "", [])),
]


@pytest.fixture(scope="module")
def changed() -> Iterator[ServerProcess]:
    """A server with a change of every kind."""
    with server_process("--appendfsync", "always", "--save", "") as server:
        for words, database, _shown in CHANGES:
            with redis.Redis.from_url(server.url, db=database) as client:
                client.execute_command(*words.split())
        yield server


def dumped(run_headwater: Run, server: ServerProcess, *words: str) -> list[dict[str, Any]]:
    printed = run_headwater("journal", "dump", str(server.data), *words, "-o", "json")
    groups = [json.loads(line) for line in printed.splitlines()]
    return [change for one in groups for change in one["changes"]]


def test_each_change_is_listed_with_database_and_key(
    changed: ServerProcess, run_headwater: Run
) -> None:
    found = [
        (one["what"], one["database"], one["key"], one["group"], one["ids"])
        for one in dumped(run_headwater, changed)
    ]
    for _words, _database, shown in CHANGES:
        if shown is not None:
            assert shown in found
            del found[: found.index(shown)]  # what follows is later


def test_who_changed_a_key_can_be_asked(changed: ServerProcess, run_headwater: Run) -> None:
    # When only the changes of one key are asked for
    found = dumped(run_headwater, changed, "--key", "copy")
    # Then there are those, and those of the whole database
    assert [one["what"] for one in found] == [
        "key deleted",
        "databases swapped",
        "flushed",
        "flushed",
    ]
    table = run_headwater("journal", "dump", str(changed.data), "--key", "s")
    lines = [line.split()[3:] for line in table.splitlines()]
    assert ["deleted", "db", "3", "s", "1-1", "3-1"] in lines
    assert ["key", "deleted", "db", "3", "s"] in lines
