"""The example at the end of each command's help works, as text and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headwater.cli.main import WORDS, app, load
from headwater.cli.output import UNHEALTHY
from headwater.messages.dead import dead_letter_fields
from headwater.messages.keys import dead_letter_stream
from headwater.testing.server import ServerProcess, server_process
from tests.command_line import in_thread
from tools import reference

pytestmark = pytest.mark.slow

ELSEWHERE = {"serve", "work", "exporter", "demo", "info"}
"""Commands that run until they are stopped, or for long; they have tests of their own, as Spark's."""

EXAMPLES = {
    path.removeprefix("headwater "): shlex.split(context.command.epilog.partition(f"{path} ")[2])
    for path, context in reference.commands(app, "headwater")
    if context.command.epilog and path != "headwater"
}
"""Command → the words of the example in its help, after the command's."""

PATHS = [
    path
    for path in EXAMPLES
    if path not in ELSEWHERE and path.split()[0] not in {"pipeline", "spark"}
]

ENTRY = "1526569498055-0"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server with what the examples name: a stream ``orders`` with a group ``billing``, whose entries are pending,
    delayed and dead; its directory is ``data`` in the current one."""
    with server_process("--appendfsync", "always") as found:
        client = redis.Redis.from_url(found.url)
        client.xadd("orders", {"item": "tea", "total": "120"}, id=ENTRY)
        client.xadd("orders", {"item": "cup", "total": "7"})
        client.xgroup_create("orders", "billing", "0")
        client.xreadgroup("billing", "web-1", {"orders": ">"}, count=1)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HEADWATER_URL", found.url)
        Path("data").symlink_to(found.data)
        yield found
        client.close()


def prepared(path: str, server: ServerProcess) -> None:
    """Bring the store into the state in which the command has something to do."""
    with redis.Redis.from_url(server.url) as client:
        if path.startswith("dead "):
            letter = dead_letter_fields(
                [b"item", b"tea"],
                stream="orders",
                group="billing",
                entry_id=ENTRY,
                consumer="web-1",
                deliveries=3,
                error="ValueError: no",
                trace="",
                at_ms=1526569498055,
            )
            client.xadd(dead_letter_stream("orders"), dict(letter), id=ENTRY)
        if path.startswith("scheduled "):
            client.xadd("{orders}:hw:later", {"item": "tea", "hw.after": "3600000"}, id=ENTRY)
        if path == "retries run":
            words = ("XSETTLE", "orders", "billing", "web-1", "FAIL", "DELAY", 3_600_000)
            client.execute_command(*words, "IDS", 1, ENTRY)
    if path in {"check", "repair"}:
        server.stop()


def options_of(path: str) -> set[str]:
    """The options of a command."""
    first, *others = path.split()
    command = load(first)
    for name in others:
        command = command.get_command(None, name)
    return {option for parameter in command.params for option in parameter.opts}


def words_of(path: str, server: ServerProcess, directory: Path) -> list[str]:
    """The words of an example, with this store and this directory."""
    words = [*path.split(), *EXAMPLES[path]]
    if "--yes" in options_of(path) and "--dry-run" not in words:
        words.append("--yes")
    found = []
    for word in words:
        if word == "-f":
            continue  # it would follow for ever
        word = word.replace("/backups", str(directory))
        if path == "restore":
            word = word.replace("2026-11-23T09:30:00Z", "now")  # the store is younger
        found.append(server.url if word == "redis://store:6379" else word)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_the_example_of_a_command_works(path: str, server: ServerProcess, tmp_path: Path) -> None:
    # Given a store with what the example names
    prepared(path, server)
    if path == "restore":
        assert in_thread(["backup", "data", f"{tmp_path}/monday"])[0] == 0
    try:
        # When it is run, then it succeeds, or says that something is wrong with what it looked at
        status, printed, complaint = in_thread(words_of(path, server, tmp_path))
        assert status in (0, UNHEALTHY), complaint
        assert printed.strip()

        # And as JSON it prints one document, or one a line
        if "--output" not in options_of(path):
            return
        words = [*words_of(path, server, tmp_path), "-o", "json"]
        status, printed, complaint = in_thread(words)
        assert status in (0, UNHEALTHY), complaint
        whole = printed.startswith(("[\n", "{\n", "[]"))
        for document in [printed] if whole else printed.splitlines():
            json.loads(document)
    finally:
        if path in {"check", "repair"}:
            server.start()


def test_every_command_has_an_example() -> None:
    assert {path.split()[0] for path in EXAMPLES} == set(WORDS)
