"""`headwater check` reads every file of a store, and says what is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import headwater
from headwater.testing.server import server_process

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store of which a part is on disk, an image was written, and a journal follows."""
    path = tmp_path / "data"
    with server_process("--stream-hot-bytes", "64kb") as server:
        with redis.Redis.from_url(server.url) as client:
            for n in range(4_000):
                client.xadd("orders", {"n": n, "text": "x" * 200})
            client.xgroup_create("orders", "g", "0")
            client.xreadgroup("g", "c", {"orders": ">"}, count=10)
            client.execute_command("SAVE")
            client.xadd("after", {"n": 1})
        server.stop()
        shutil.copytree(server.data, path)
    return path


def files(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.suffix != ".lock"}


def test_a_whole_store_is_healthy_and_not_changed(directory: Path, run_headwater: Run) -> None:
    before = files(directory)
    assert "2 streams with 4,001 entries" in run_headwater("check", str(directory))
    (found,) = json.loads(run_headwater("check", str(directory), "-o", "json"))
    assert (found["healthy"], found["entries"], found["faults"]) == (True, 4_001, [])
    assert files(directory) == before


@pytest.mark.parametrize("kind", ["journal", "image", "segment"])
def test_a_flipped_bit_is_found_in_every_kind_of_file(
    directory: Path, run_headwater: Run, kind: str
) -> None:
    # Given a flipped bit in the middle of what a file contains
    path = min(one for one in directory.iterdir() if one.name.startswith(kind))
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    data[used // 2] ^= 4
    path.write_bytes(data)
    before = files(directory)
    # Then check says so, with the name of the file, and changes nothing
    printed = run_headwater("check", str(directory), status=3)
    assert "damaged" in printed.splitlines()[0]
    assert path.name in printed
    if kind == "segment":
        assert "stream orders" in printed or "nothing is lost yet" in printed
    assert files(directory) == before


def test_a_directory_in_use_or_without_a_store_is_an_error(
    tmp_path: Path, directory: Path, run_headwater: Run
) -> None:
    with headwater.connect(f"headwater://{directory}"):
        assert "is in use by" in run_headwater("check", str(directory), status=1)
    assert "there is no directory" in run_headwater("check", str(tmp_path / "none"), status=1)
    (tmp_path / "empty").mkdir()
    assert "has no store" in run_headwater("check", str(tmp_path / "empty"), status=1)
