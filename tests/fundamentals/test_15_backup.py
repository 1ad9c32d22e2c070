"""Backups: a copy of a store in use, and a store as it was at a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import redis

import headwater
from headwater.cli.output import UNHEALTHY
from headwater.testing.server import server_process


def test_a_store_is_copied_while_it_is_used(
    tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    with (
        server_process("--dir", str(tmp_path / "shop")) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        client.xadd("orders", {"item": "tea"})
        run_headwater("backup", str(tmp_path / "shop"), str(tmp_path / "copy"))
        client.xadd("orders", {"item": "milk"})

    with headwater.connect(f"headwater://{tmp_path}/copy") as copy:
        assert [fields for _entry, fields in copy.xrange("orders")] == [{b"item": b"tea"}]


def test_a_store_is_checked_without_opening_it(
    tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    with headwater.connect(f"headwater://{tmp_path}/shop") as store:
        store.xadd("orders", {"item": "tea"})
    assert "healthy" in run_headwater("check", str(tmp_path / "shop"))


def test_damage_is_found_and_not_repaired_silently(
    tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    with headwater.connect(f"headwater://{tmp_path}/shop") as store:
        for number in range(100):
            store.xadd("orders", {"number": number})
    journal = tmp_path / "shop" / "journal-000001"
    data = bytearray(journal.read_bytes())
    data[2_000] ^= 0xFF
    journal.write_bytes(data)

    said = run_headwater("check", str(tmp_path / "shop"), status=UNHEALTHY)
    assert "damaged" in said
