"""Outages: states in which a real store refuses commands, and how to begin and end them."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis.asyncio

from tests.worker.apps import eventually

PEERS = ("redis-8.2", "redis-7.0", "valkey-9.1")

Change = Callable[[redis.asyncio.Redis, Path], Awaitable[None]]


@dataclass(frozen=True)
class Outage:
    """``begin`` and ``end`` receive a connection and the server's directory. ``code`` is the error code
    of writes during the outage."""

    code: str
    begin: Change
    end: Change

    def __str__(self) -> str:
        return self.code


def _set(name: str, value: str) -> Change:
    async def change(look: redis.asyncio.Redis, _directory: Path) -> None:
        await look.config_set(name, value)

    return change


async def _fail_to_save(look: redis.asyncio.Redis, directory: Path) -> None:
    # A file cannot be renamed to the name of a directory that is not empty.
    (directory / "dump.rdb" / "in-the-way").mkdir(parents=True)
    await look.config_set("save", "3600 1")
    await look.bgsave()

    async def failed() -> bool:
        info: Any = await look.info("persistence")
        return bool(info["rdb_last_bgsave_status"] == "err")

    await eventually(failed)


async def _save_again(look: redis.asyncio.Redis, directory: Path) -> None:
    shutil.rmtree(directory / "dump.rdb")
    await look.config_set("stop-writes-on-bgsave-error", "no")


async def _demote(look: redis.asyncio.Redis, _directory: Path) -> None:
    await look.replicaof("127.0.0.1", "1")  # nothing listens on port 1: its data stay unchanged


async def _lose_the_primary(look: redis.asyncio.Redis, directory: Path) -> None:
    await look.config_set("replica-serve-stale-data", "no")
    await _demote(look, directory)


async def _promote(look: redis.asyncio.Redis, _directory: Path) -> None:
    await look.replicaof("NO", "ONE")


OUTAGES = (
    Outage("OOM", _set("maxmemory", "1"), _set("maxmemory", "0")),
    Outage("NOREPLICAS", _set("min-replicas-to-write", "1"), _set("min-replicas-to-write", "0")),
    Outage("MISCONF", _fail_to_save, _save_again),
    Outage("READONLY", _demote, _promote),
    Outage("MASTERDOWN", _lose_the_primary, _promote),
)
