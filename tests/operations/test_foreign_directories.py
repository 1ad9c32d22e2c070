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
