"""The guides for workers, clients and streams run one after another, on one server.

Programs that need no server run in tests of their own guide, and not here.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.resp.inline import split
from headwater.testing.replies import Reply
from headwater.testing.server import ServerProcess, server_process
from tests.conformance.endpoints import Connection
from tests.conformance.transcript import shown
from tests.guides import GUIDES, as_redis_cli
from tests.waiting import PATIENCE_SECONDS, eventually

ROOT = GUIDES.parents[1]
ADDRESS = "redis://localhost:6379"
HEADWATER = [sys.executable, "-m", "headwater.cli.main"]
COMMANDS = {"headwater": HEADWATER, "python": [sys.executable, "-W", "error"]}
FIELDS = {"number": "int", "item": "str", "price": "float"}

_VARYING = re.compile(r"(\d{13}-\d+)|\d{4}-\d\d-\d\dT[\d:.]+Z")
"""An entry id, which is the group, or a time."""

_TIMES = (
    re.compile(r"(?<=-ms, )\d+"),  # XLAG
    re.compile(r"(?<=\], )\d+(?=, \d+\])"),  # the idle time of XREADGROUP … CLAIM
    re.compile(r"(?<=, ann, )\d+|(?<=, bob, )\d+"),  # the idle time of XPENDING
    re.compile(r"(?<=\[1-3, )\d+(?=, 1\])"),  # XDELAYED
)


def blocks(guide: str, language: str) -> list[str]:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"{guide} has no {language}"
    return found


def programs(guide: str) -> list[str]:
    """Return the programs of a guide that need its server."""
    return [program for program in blocks(guide, "python") if ADDRESS in program]


class Reader:
    """Follows the guides, in one directory and on one server."""

    def __init__(self, server: ServerProcess, client: redis.Redis, directory: Path) -> None:
        self.server = server
        self.client: Any = client
        self.directory = directory
        self.connection = Connection(server)
        self.ids: dict[str, str] = {}
        """The real entry id for each one that a guide shows."""

    def save(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text.replace(ADDRESS, self.server.url))

    def run(self, *command: str) -> str:
        """Run a program that prints no error, and return its output."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, "HEADWATER_URL": self.server.url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def runs(self, program: str) -> str:
        """Run a Python program."""
        self.save("program.py", program)
        return self.run(sys.executable, "-W", "error", "program.py")

    def tests_pass(self, setting: str) -> None:
        """Run the tests in ``shop.py`` with the setting that the guide names."""
        self.save("pyproject.toml", f"[tool.pytest.ini_options]\n{setting}\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        scope = ["-o", "asyncio_default_fixture_loop_scope=function"]  # silences a warning
        assert "passed" in self.run(*command, *scope, "shop.py")

    @contextmanager
    def working(self, command: str) -> Iterator[Path]:
        """Run ``headwater work`` in the block, and stop it when billing has settled every order.

        The value is the file with everything that it has printed.
        """
        name, *arguments = shlex.split(command)
        assert (name, arguments[:2]) == ("headwater", ["work", "shop:app"])
        output = self.directory / "output"
        with (
            output.open("wb") as file,
            subprocess.Popen(
                [*HEADWATER, *arguments],
                cwd=self.directory,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as worker,
        ):
            try:
                started = re.compile(
                    r" consumers? on "
                )  # of each worker, and of the quarantine process
                wanted = int(dict(pairwise(arguments)).get("--workers", "1")) + 1
                eventually(
                    lambda: (
                        len(started.findall(output.read_text())) == wanted
                        or worker.poll() is not None
                    ),
                    "all processes start",
                )
                assert worker.poll() is None, "it has ended"
                yield output
                self.wait_for_billing()
                worker.terminate()
                assert worker.wait(PATIENCE_SECONDS) == 0
                assert " ERROR " not in output.read_text()
            except BaseException:
                sys.stderr.write(output.read_text())
                raise
            finally:
                with suppress(ProcessLookupError):  # its workers are in the same process group
                    os.killpg(worker.pid, signal.SIGKILL)

    def wait_for_billing(self) -> None:
        eventually(self._settled, "billing settles every order")

    def _settled(self) -> bool:
        try:
            reply = self.client.execute_command("XLAG", "orders", "billing")
        except redis.ResponseError:  # neither the stream nor the group exists yet
            return False
        lag = dict(zip(reply[1][::2], reply[1][1::2], strict=True))
        return (lag["unread"], lag["pending"]) == (0, 0)

    def follow(self, console: str) -> None:
        """Run the commands after each ``$``, and compare their output if the guide shows it."""
        for part in console.removeprefix("$ ").split("\n$ "):
            command, _, expected = part.partition("\n")
            for there, here in self.ids.items():
                command = command.replace(there, here)
            printed = self._command(command)
            if expected.strip() and not command.startswith("headwater pending"):
                self.compare(expected.strip(), printed.strip(), command)
            self.wait_for_billing()

    def _command(self, command: str) -> str:
        name, *words = shlex.split(command)
        if name == "redis-cli":
            return as_redis_cli(self.reply(*(word.encode() for word in words)))
        return self.run(*COMMANDS[name], *words)

    def reply(self, *words: bytes) -> Reply:
        self.connection.send(*words)
        return self.connection.reply()

    def compare(self, expected: str, printed: str, command: str) -> None:
        """Compare output with the guide's. Times may differ; an id must stand for the same entry everywhere."""
        shapes = [_VARYING.sub("<id or time>", text) for text in (expected, printed)]
        assert shapes[0] == shapes[1], command
        for there, here in zip(_VARYING.findall(expected), _VARYING.findall(printed), strict=True):
            if there:
                assert self.ids.setdefault(there, here) == here, f"{command}: {there}"

    def type(self, transcript: str) -> None:
        """Send the commands after each ``>``, and compare their replies except for times."""
        expected: list[str] = []
        received: list[str] = []
        for line in transcript.splitlines():
            if re.match(r"# \d+s pass$", line):
                eventually(self._none_delayed, "the delayed entries are due")
            elif line.startswith("> "):
                received.append(shown(self.reply(*split(line[2:].encode()))))
            else:
                expected.append(line)
        assert without_times(received) == without_times(expected)

    def _none_delayed(self) -> bool:
        return self.reply(b"XDELAYED", b"orders", b"billing") == []


def without_times(replies: list[str]) -> list[str]:
    for pattern in _TIMES:
        replies = [pattern.sub("<ms>", reply) for reply in replies]
    return replies


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with server_process() as server:
        with redis.Redis.from_url(server.url, decode_responses=True, protocol=2) as client:
            reader = Reader(server, client, tmp_path)
            yield reader
            reader.connection.close()


@pytest.mark.slow
def test_the_guides_run_in_sequence_on_one_server(reader: Reader) -> None:
    read_worker(reader)
    read_worker_apps(reader)
    read_client(reader)
    read_streams(reader)
    read_idempotent_producers(reader)
    # Then all entries of the stream have the same fields
    assert {frozenset(fields) for _id, fields in reader.client.xrange("orders")} == {
        frozenset(FIELDS)
    }


def test_every_guide_declares_the_same_order() -> None:
    declared = [
        (page.name, dict(re.findall(r"(\w+): (\w+)", fields)))
        for page in (ROOT / "README.md", *GUIDES.glob("*.md"))
        for fields in re.findall(
            r"^class Order\(.*\):\n((?:    .+\n)+)", page.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert len(declared) > 5
    assert [(page, fields) for page, fields in declared if fields != FIELDS] == []


def read_worker(reader: Reader) -> None:
    # When all programs are in shop.py, as the guide says, and the workers run
    reader.save("shop.py", "\n\n".join(blocks("worker.md", "python")))
    start, *commands = blocks("worker.md", "console")
    with reader.working(start.removeprefix("$ ")):
        # Then every command prints the lines that the guide shows
        for block in commands:
            reader.follow(block)
    # And each order without a negative price has its invoice
    orders = [fields for _id, fields in reader.client.xrange("orders")]
    billed = {fields["number"] for _id, fields in reader.client.xrange("invoices")}
    assert billed == {order["number"] for order in orders if float(order["price"]) >= 0}
    # And pytest runs the guide's tests with its setting
    reader.tests_pass(setting("worker.md"))


def setting(guide: str) -> str:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    assert "Install pytest-asyncio" in text
    (found,) = re.findall(r"set\s`(.*?)`\sin\s`\[tool\.pytest\.ini_options\]`", text)
    return str(found)


def read_worker_apps(reader: Reader) -> None:
    printed = ""
    for program in programs("worker-apps.md"):
        # When the workers of a program run, and an order is added
        reader.save("shop.py", program)
        reader.client.xadd("orders", {"number": 1, "item": "tea", "price": 2.5})
        with reader.working("headwater work shop:app") as output:
            pass
        printed += output.read_text()
        # Then its tests pass as well
        if "async def test_" in program:
            reader.tests_pass(setting("worker.md"))
    # And all dependencies are opened and closed, all functions called, in a worker and in the quarantine process
    lines = printed.splitlines()
    for line in (
        "the database is open",
        "the database is closed",
        "before the first entry is read",
        "after the last settlement",
    ):
        assert lines.count(line) == 2, line


def read_client(reader: Reader) -> None:
    before = reader.client.xlen("orders")
    printed = [reader.runs(program) for program in programs("client.md")]
    assert printed == [f"orders: {before + 1}\n", f"orders: {before + 2}\n"]


def read_streams(reader: Reader) -> None:
    # Given the empty database that the guide names
    (number,) = re.findall(r"redis-cli -n (\d+)", (GUIDES / "streams.md").read_text("utf-8"))
    assert as_redis_cli(reader.reply(b"SELECT", number.encode())) == "OK"
    assert reader.reply(b"DBSIZE") == 0
    # When the commands are typed, then the replies are the guide's
    for block in blocks("streams.md", "text"):
        reader.type(block)


def read_idempotent_producers(reader: Reader) -> None:
    before = reader.client.xlen("orders")
    printed = [reader.runs(program) for program in programs("idempotent-producers.md")]
    assert printed == [
        f"True {before + 1}\n{before + 2} entries, 2 repeated\n",
        "3600 10000 0\n",
    ]
