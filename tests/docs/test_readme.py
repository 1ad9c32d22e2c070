"""README.md's programs run unchanged, one after another."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.testing.server import ServerProcess, server_process

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "redis://localhost:6379"


def programs() -> dict[str, str]:
    """Return each Python block by the file name in its first line."""
    blocks = re.findall(r"```python\n(# (\S+)\n.*?)```", README, re.DOTALL)
    assert len(blocks) == README.count("```python")
    return {name: text for text, name in blocks}


def commands() -> list[str]:
    """Return the command after each prompt."""
    return re.findall(r"^\$ (.+)$", README, re.MULTILINE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """The README's server on another port; its programs are in ``tmp_path``, with that port."""
    assert commands()[0] == "headwater serve --dir data"
    with server_process() as server:
        for name, text in programs().items():
            (tmp_path / name).write_text(text.replace(ADDRESS, server.url))
        yield server


def run(program: str, directory: Path) -> str:
    """Run the program and return its output."""
    done = subprocess.run(
        [sys.executable, program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def work(directory: Path, server: ServerProcess, *, invoices: int) -> None:
    """Run the README's worker until there are ``invoices`` invoices."""
    command = commands()[1].split()
    assert command[:2] == ["headwater", "work"]
    with (
        headwater.connect(server.url) as client,
        subprocess.Popen(
            [sys.executable, "-m", *command], cwd=directory, stderr=subprocess.DEVNULL
        ) as worker,
    ):
        try:
            last, found = "0", 0
            while found < invoices:
                reply: Any = client.xread({"invoices": last}, block=60_000)
                assert reply, f"{found} of {invoices} invoices within a minute"
                entries = reply[0][1]
                last, found = entries[-1][0], found + len(entries)
        finally:
            worker.terminate()
    assert worker.returncode == 0


@pytest.mark.slow
def test_the_server_and_the_worker(server: ServerProcess, tmp_path: Path) -> None:
    # When the first program adds orders, and the worker handles them
    assert run("order.py", tmp_path) == "3 orders\n"
    work(tmp_path, server, invoices=3)
    # Then each order has its invoice
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        found: Any = client.xrange("invoices")
        assert sorted(fields["number"] for _id, fields in found) == ["1", "2", "3"]


@pytest.mark.slice
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_reads_the_workers_results(server: ServerProcess, tmp_path: Path) -> None:
    run("order.py", tmp_path)
    work(tmp_path, server, invoices=3)
    assert re.search(r"\|\s+3\|\s*18\.0\|", run("revenue.py", tmp_path))


def test_every_linked_page_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_guide_is_linked() -> None:
    guides = [str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "guide").glob("*.md")]
    assert guides
    assert [guide for guide in guides if f"]({guide})" not in README] == []
