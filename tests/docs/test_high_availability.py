"""docs/guide/high-availability.md: every command and program runs, with three servers and three Sentinels.

Where the guide has machines, 10.0.0.1 to 10.0.0.3, the test has ports.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater import connect
from tests import peers
from tests.guides import GUIDES
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TEXT = (GUIDES / "high-availability.md").read_text(encoding="utf-8")
PARTS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
MACHINES = (1, 2, 3)
SENTINEL = ("redis-8.2", "valkey-9.1", "redis-7.0")


def blocks(part: str, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PARTS[part], re.DOTALL)
    assert found, f"{part} has no {language}"
    return found


class Machines:
    """The three machines: a directory and two ports each."""

    def __init__(self, directory: Path, stack: ExitStack, sentinel: str) -> None:
        executable = peers.path(sentinel)
        if executable is None:
            raise peers.PeerMissing(sentinel)
        self.sentinel = str(executable)
        self.directory = directory
        self.ports = {(n, port): peers.free_port() for n in MACHINES for port in (6379, 26379)}
        self._stack = stack
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
        for n in MACHINES:
            (directory / str(n)).mkdir()

    def here(self, text: str) -> str:
        """Replace the machines' addresses by those of this test."""
        text = re.sub(
            r"10\.0\.0\.(\d)([: ])(6379|26379)\b",
            lambda one: f"127.0.0.1{one[2]}{self.ports[int(one[1]), int(one[3])]}",
            text,
        )
        return re.sub(
            r"-h 10\.0\.0\.(\d) -p (\d+)",
            lambda one: f"-h 127.0.0.1 -p {self.ports[int(one[1]), int(one[2])]}",
            text,
        )

    def there(self, text: str) -> str:
        """The other way round."""
        for (n, port), own in self.ports.items():
            text = text.replace(f"127.0.0.1:{own}", f"10.0.0.{n}:{port}")
            text = text.replace(f'"127.0.0.1"\n2) "{own}"', f'"10.0.0.{n}"\n2) "{port}"')
        return text

    def configure(self, text: str) -> None:
        """Write a configuration file on each machine, with its own address."""
        name = Path(text.partition("\n")[0].removeprefix("# ")).name
        for n in MACHINES:
            own = text
            for port in (6379, 26379):
                own = own.replace(f"\nport {port}\n", f"\nport {self.ports[n, port]}\n")
            own = own.replace("bind 10.0.0.1", "bind 127.0.0.1")
            own = own.replace("/var/lib/headwater", str(self.directory / str(n) / "data"))
            own = own.replace("milliseconds shop 5000", "milliseconds shop 1000")
            own = own.replace("timeout shop 60000", "timeout shop 3000")
            (self.directory / str(n) / name).write_text(self.here(own))

    def run(self, console: str) -> None:
        """Run the commands after each ``$`` and compare what they print with the guide."""
        for part in console.removeprefix("$ ").split("\n$ "):
            command, _, expected = part.partition("\n")
            words = shlex.split(self.here(command))
            if "/etc/headwater" in command:
                self._on_each(words)
            elif "work" in words:
                self._works(words)
            else:
                self._compare(words, expected)

    def _compare(self, words: list[str], expected: str) -> None:
        """Run a command. A query is repeated until it prints what the guide says: a moment later it is there."""
        printed = ""

        def prints() -> bool:
            nonlocal printed
            printed = self.there(self._printed(words))
            return not expected or shape(printed) == shape(expected)

        if words[0] == "redis-cli" and "GET-MASTER-ADDR-BY-NAME" not in words:
            assert prints(), (words, printed)
            return
        try:
            eventually(prints)
        except AssertionError:
            assert shape(printed) == shape(expected), words
            raise

    def _printed(self, words: list[str]) -> str:
        if words[0] == "redis-cli":
            cli = peers.redis_cli()
            if cli is None:
                raise peers.PeerMissing("redis-cli")
            words = [str(cli), "--no-raw", "--no-auth-warning", *words[1:]]
        else:
            words = [sys.executable, "-m", "headwater.cli.main", *words[1:]]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    def _on_each(self, words: list[str]) -> None:
        """Start a program on each machine, with its own file."""
        program = [self.sentinel] if words[0] == "redis-server" else _HEADWATER
        for n in MACHINES:
            own = [word.replace("/etc/headwater", str(self.directory / str(n))) for word in words]
            log = self.directory / str(n) / Path(program[0]).name
            process = self.start([*program, *own[1:]], log)
            if words[0] == "headwater":
                self.servers[self.ports[n, 6379]] = process
        for (n, port), own_port in self.ports.items():
            if (port == 26379) == (words[0] == "redis-server"):
                eventually(partial(_answers, own_port), f"machine {n} answers")
                if port == 26379:  # by default a Sentinel asks its servers every ten seconds
                    client: Any = redis.Redis(port=own_port)
                    client.execute_command(
                        "SENTINEL", "DEBUG", "info-period", 500, "publish-period", 500
                    )

    def start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._stack.callback(_end, process)
        return process

    def _works(self, words: list[str]) -> None:
        log = self.directory / "work"
        worker = self.start([*_HEADWATER, *words[1:]], log)
        try:
            eventually(lambda: "billed 1" in log.read_text(), "the worker handles the order")
        except AssertionError:
            sys.stderr.write(log.read_text())
            raise
        worker.terminate()
        assert worker.wait(30) == 0

    def program(self, text: str) -> str:
        """Run a Python program, or save it if it says its name."""
        text = self.here(text)
        if name := re.match(r"# (\w+\.py)\n", text):
            (self.directory / name[1]).write_text(text)
            return ""
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=dict(os.environ),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


_HEADWATER = [sys.executable, "-m", "headwater.cli.main"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def _answers(port: int) -> bool:
    try:
        return bool(redis.Redis(port=port, password=None).ping())
    except redis.AuthenticationError:
        return True
    except redis.ConnectionError:
        time.sleep(0.05)
        return False


def shape(text: str) -> list[str]:
    """Lines without offsets, times and the widths of columns; either replica may be first, or be promoted."""
    text = re.sub(r"offset [\d,]+", "offset N", text)
    text = re.sub(r"(online|bytes) +[\d,]+", r"\1 N", text)
    text = re.sub(r"\d+ s\b", "N s", text)
    text = re.sub(r"10\.0\.0\.[23]", "10.0.0.2 or 3", text)
    lines = [
        " ".join(re.sub(r"N +[\d,]+ bytes", "N N bytes", one).split()) for one in text.splitlines()
    ]
    return [one for one in lines if one]


@pytest.fixture(params=SENTINEL)
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        try:
            yield Machines(tmp_path, stack, request.param)
        except peers.PeerMissing as missing:
            if peers.required():
                raise
            pytest.skip(str(missing))


def test_the_guide_sets_up_a_group_that_survives_its_primary(machines: Machines) -> None:
    # When a reader follows the guide, then each command prints what it says
    (file,) = blocks("The servers", "text")
    machines.configure(file)
    for console in blocks("The servers", "console"):
        machines.run(console)
    (file,) = blocks("The Sentinels", "text")
    machines.configure(file)
    for console in blocks("The Sentinels", "console"):
        machines.run(console)
    url = machines.here(re.findall(r'URL = "(.*?)"', TEXT)[0])
    eventually(lambda: _known(machines), "the Sentinels know all servers and each other")
    programs = blocks("Clients, workers and Spark", "python")
    printed = [machines.program(one) for one in programs if "spark" not in one]
    assert printed == ["1 order\n", ""]
    for console in blocks("Clients, workers and Spark", "console"):
        machines.run(console)
    (spark,) = [one for one in programs if "spark" in one]
    assert machines.program(spark) == "1 order\n"
    (planned,) = blocks("A planned failover", "console")
    machines.run(planned)
    # And when the new primary is killed after an answered write, then the next one has it
    first = machines.ports[1, 6379]
    eventually(lambda: _primary(url) not in {0, first}, "clients follow")
    second = _primary(url)
    eventually(lambda: _add(url, 2), "the new primary has a replica")
    machines.servers[second].kill()
    eventually(lambda: _primary(url) not in {0, second}, "clients follow again")
    with connect(url, decode_responses=True) as client:
        entries: Any = client.xrange("orders")
        assert "2" in [fields["number"] for _id, fields in entries]


def _add(url: str, number: int) -> bool:
    try:
        with connect(url) as client:
            client.xadd("orders", {"number": number, "item": "tea", "price": 2.5})
    except redis.RedisError:
        return False
    return True


def _known(machines: Machines) -> bool:
    for n in MACHINES:
        client: Any = redis.Redis(port=machines.ports[n, 26379], decode_responses=True)
        about = client.sentinel_master("shop")
        if (about["num-slaves"], about["num-other-sentinels"]) != (2, 2):
            return False
    return True


def _primary(url: str) -> int:
    """Return the port of the primary; 0 if there is none at the moment."""
    try:
        with connect(url) as client:
            info: Any = client.info("server")
            return int(info["tcp_port"])
    except redis.RedisError:
        return 0
