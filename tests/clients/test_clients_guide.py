"""The guide to clients: its programs run as they stand there, and its versions are those tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import peers
from tests.clients.node_process import NODE_MISSING
from tests.clients.stands import Stand
from tools.peers import NODE_PACKAGES

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guide" / "clients.md"
TEXT = GUIDE.read_text(encoding="utf-8")
SECONDS = 60

PRINTED = {
    "redis-py": "orders [('1-1', {'item': 'tea'})]\n",
    "valkey-py": "[('1-1', {'item': 'tea'})]\n",
    "FastStream": "bill for tea\n",
}
"""What the programs print; those not named here print ``1 order``."""

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
    """The program of each section that has one in this language."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        block = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
        if block:
            found[section.split("\n")[0]] = block[1]
    return found


def here(program: str, stand: Stand) -> str:
    """The same program, for this server."""
    return re.sub("localhost(.{0,20})6379", rf"127.0.0.1\g<1>{stand.where.port}", program)


@pytest.mark.parametrize("client", programs("python"))
def test_a_program_runs(stand: Stand, client: str) -> None:
    stand.empty()
    done = subprocess.run(
        [sys.executable, "-c", here(programs("python")[client], stand)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    # FastStream logs where it prints; its lines begin with the date.
    printed = re.sub(r"^\d{4}-.*\n", "", done.stdout, flags=re.MULTILINE)
    assert (done.returncode, printed) == (0, PRINTED.get(client, "1 order\n")), done.stderr


@pytest.mark.peer
@pytest.mark.parametrize("client", programs("javascript"))
def test_a_program_of_node_runs(stand: Stand, client: str) -> None:
    node = peers.node()
    if node is None:
        pytest.skip(NODE_MISSING)
    packages = peers.node_packages()
    if packages is None:
        pytest.skip(str(peers.PeerMissing(client)))
    stand.empty()
    done = subprocess.run(
        [node, "-e", here(programs("javascript")[client], stand)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "NODE_PATH": str(packages)},
    )
    assert (done.returncode, done.stdout) == (0, "1 order\n"), done.stderr


@pytest.mark.peer
def test_the_session_of_redis_cli_is_what_it_prints(stand: Stand, redis_cli: str) -> None:
    stand.empty()
    (session,) = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for command, answer in re.findall(r"\$ redis-cli -p 6379 (.*)\n(.*)\n", session):
        done = subprocess.run(
            [redis_cli, "-p", str(stand.where.port), *command.split()],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert done.stdout.strip() == answer


def test_the_versions_are_those_that_are_tested() -> None:
    tested = dict(re.findall(r"^\| (.*?) \| ([0-9.]+) \|", TEXT, re.MULTILINE))
    for name, package in PACKAGES.items():
        assert tested.pop(name) == version(package), name
    node = dict(package.split("@") for package in NODE_PACKAGES)
    assert tested.pop("ioredis") == node["ioredis"]
    assert tested.pop("node-redis") == node["redis"]
    assert tested == {"redis-cli, redis-benchmark": "7.0.15"}


def test_every_client_of_the_table_has_its_tests() -> None:
    tests = Path(__file__).parent
    names = re.findall(r"^\| ([a-zA-Z-]+)", TEXT.partition("|---")[2], re.MULTILINE)
    for name in names:
        file = name.lower().replace("-", "_").removesuffix("_sync")
        file = {"taskiq_redis": "taskiq"}.get(file, file)
        assert (tests / f"test_{file}.py").exists(), name
