"""A data directory of Redis or Valkey is named and refused, not started empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import headwater
from headwater.errors import StoreUnusable
from tests import peers

pytestmark = pytest.mark.peer

StartPeer = Callable[..., peers.Peer]
Run = Callable[..., str]


@pytest.mark.parametrize(
    ("name", "settings", "file"),
    [
        ("redis-8.2", ["--save", "900 1"], "dump.rdb"),
        ("redis-8.2", ["--save", "", "--appendonly", "yes"], "appendonlydir"),
        ("redis-7.0", ["--dbfilename", "mine.rdb", "--save", "900 1"], "mine.rdb"),
        ("valkey-9.1", ["--save", "900 1"], "dump.rdb"),
    ],
)
def test_a_data_directory_of_redis_is_refused(
    peer: StartPeer, run_headwater: Run, tmp_path: Path, name: str, settings: list[str], file: str
) -> None:
    # Given the directory of a server with a key, which was stopped
    other = peer(name, "--dir", str(tmp_path), *settings)
    with redis.Redis.from_url(other.url) as client:
        client.set("k", "v")
        if "appendonly" not in settings[-2]:
            client.save()
    other.kill()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert file in before
    # When Headwater is started there
    said = run_headwater("serve", "--dir", str(tmp_path), "--port", "0", status=1, apart=True)
    # Then it says what it found, and changes nothing
    assert f"{tmp_path} has {file}" in said
    assert "MIGRATE" in said
    with pytest.raises(StoreUnusable, match=file):
        headwater.connect(f"headwater://{tmp_path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_store_with_a_copy_of_a_dump_starts(tmp_path: Path) -> None:
    with headwater.connect(f"headwater://{tmp_path}") as client:
        client.set("k", "v")
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0011")
    with headwater.connect(f"headwater://{tmp_path}") as client:
        assert client.get("k") == b"v"


@pytest.mark.parametrize(
    "command",
    [
        "streams list", "groups list", "lag s", "lag s g", "tail s", "explain", "explain s g",
        "pending list s g", "pending show s g 1-1", "pending claim s g 1-1 --to c", "pending ack s g 1-1",
        "dead list s", "dead show s 1-1", "dead replay s 1-1", "dead drop s 1-1", "consumers list s g",
        "consumers reap s g",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["new", "empty"])
def test_a_command_that_looks_at_a_store_begins_none(
    run_headwater: Run, tmp_path: Path, command: str, place: str
) -> None:
    (tmp_path / "empty").mkdir()
    said = run_headwater(*command.split(), "--url", f"headwater://{tmp_path / place}", status=1)
    assert f"{tmp_path / place}. Check the path" in said
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []
    # But an entry may be added where there is none
    assert "-" in run_headwater("add", "s", "a=b", "--url", f"headwater://{tmp_path / place}")


def test_a_doctor_begins_no_store(run_headwater: Run, tmp_path: Path) -> None:
    said = run_headwater("doctor", "--url", f"headwater://{tmp_path / 'new'}", status=3)
    assert f"there is no directory {tmp_path / 'new'}" in said
    assert not (tmp_path / "new").exists()
