"""The guide to clients: its programs run unchanged, and its versions are the tested ones."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import peers
from tests.clients.node_process import NODE_MISSING
from tests.clients.servers import SharedServer
from tools.peers import NODE_PACKAGES

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guide" / "clients.md"
TEXT = GUIDE.read_text(encoding="utf-8")
SECONDS = 60

PRINTED = {
    "redis-py": "bill for tea\n",
    "FastStream": "bill for tea\n",
}
"""The output of the programs; all others print ``orders: 1``."""

PACKAGES = {
    "redis-py, sync and asyncio": "redis",
    "valkey-py, sync and asyncio": "valkey",
    **{
        name: name
        for name in (
            "valkey-glide",
            "valkey-glide-sync",
            "coredis",
            "walrus",
            "FastStream",
            "taskiq-redis",
        )
    },
}


def programs(language: str) -> dict[str, str]:
    """Return the program of each section that has one in ``language``."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        block = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
        if block:
            found[section.split("\n")[0]] = block[1]
    return found


def here(program: str, server: SharedServer) -> str:
    """Return the program with the address of ``server``."""
    return re.sub("localhost(.{0,20})6379", rf"127.0.0.1\g<1>{server.address.port}", program)


@pytest.mark.parametrize("client", programs("python"))
def test_a_program_runs(server: SharedServer, client: str) -> None:
    server.empty()
    done = subprocess.run(
        [sys.executable, "-c", here(programs("python")[client], server)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    # FastStream also logs to standard output: lines that begin with the date, and at times a traceback after one.
    logged = r"^\d{4}-.*\n(Traceback .*\n( .*\n)*\S.*\n)?"
    printed = re.sub(logged, "", done.stdout, flags=re.MULTILINE)
    assert (done.returncode, printed) == (0, PRINTED.get(client, "orders: 1\n")), done.stderr


@pytest.mark.peer
@pytest.mark.parametrize("client", programs("javascript"))
def test_a_program_of_node_runs(server: SharedServer, client: str) -> None:
    node = peers.node()
    if node is None:
        pytest.skip(NODE_MISSING)
    packages = peers.node_packages()
    if packages is None:
        pytest.skip(str(peers.PeerMissing(client)))
    server.empty()
    done = subprocess.run(
        [node, "-e", here(programs("javascript")[client], server)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "NODE_PATH": str(packages)},
    )
    assert (done.returncode, done.stdout) == (0, "orders: 1\n"), done.stderr


@pytest.mark.peer
def test_redis_cli_prints_the_guides_session(server: SharedServer, redis_cli: str) -> None:
    server.empty()
    (session,) = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for command, answer in re.findall(r"\$ redis-cli -p 6379 (.*)\n(.*)\n", session):
        done = subprocess.run(
            [redis_cli, "--no-raw", "-p", str(server.address.port), *shlex.split(command)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert without_ids(done.stdout.strip()) == without_ids(answer)


def without_ids(text: str) -> str:
    return re.sub(r"\d+-\d+", "<id>", text)


def test_the_guides_versions_are_the_tested_ones() -> None:
    tested = dict(re.findall(r"^\| (.*?) \| ([0-9.]+) \|", TEXT, re.MULTILINE))
    for name, package in PACKAGES.items():
        assert tested.pop(name) == version(package), name
    node = dict(package.split("@") for package in NODE_PACKAGES)
    assert tested.pop("ioredis") == node["ioredis"]
    assert tested.pop("node-redis") == node["redis"]
    assert tested == {"redis-cli, redis-benchmark": "7.0.15"}


def test_every_client_of_the_table_has_tests() -> None:
    tests = Path(__file__).parent
    names = re.findall(r"^\| ([a-zA-Z-]+)", TEXT.partition("|---")[2], re.MULTILINE)
    for name in names:
        file = name.lower().replace("-", "_").removesuffix("_sync")
        file = {"taskiq_redis": "taskiq"}.get(file, file)
        assert (tests / f"test_{file}.py").exists(), name
