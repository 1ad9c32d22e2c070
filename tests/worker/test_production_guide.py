"""The guide to production: its programs run, and the rights that it lists suffice."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from headwater.worker import App
from tests import peers
from tests.worker.apps import Store, work_in_every_way
from tests.worker.outages import PEERS

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guide"
TEXT = (GUIDES / "production.md").read_text(encoding="utf-8")
WORKER = (GUIDES / "worker.md").read_text(encoding="utf-8")


def test_the_programs_of_the_guide_run(
    store_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the module shop of the guide
    url = store_url("headwater")
    first, *others = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(others) == 2
    shop = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)
    exec(first.replace("redis://localhost:6379", url), vars(shop))

    # When the programs that import it run
    names: dict[str, Any] = {}
    exec("\n".join(others), names)

    asyncio.run(names["order"](17))
    asyncio.run(names["order"](17))
    asyncio.run(names["test_a_negative_price_is_a_dead_letter"]())

    # Then the order that was sent twice is there once
    with redis.Redis.from_url(url) as client:
        assert client.xlen("orders") == 1


def test_the_commands_of_the_guide_exist(run_headwater: Callable[..., str]) -> None:
    commands = set(
        re.findall(r"headwater (serve|work|explain|dead \w+|pending \w+|consumers \w+)", TEXT)
    )
    assert {"work", "serve", "pending list", "explain", "dead list", "consumers list"} <= commands
    for command in commands:
        run_headwater(*command.split(), "--help")
    helped = run_headwater("work", "--help")
    for option in set(re.findall(r"headwater work shop:app (.*)", TEXT)):
        for word in re.findall(r"--[a-z-]+", option):
            assert word in helped


def _rights_of(page: str) -> list[str]:
    """The words of the page's ACL SETUSER, or one built from its list of rights."""
    lines = re.findall(r"^ACL SETUSER .*$", page, re.MULTILINE)
    if lines:
        return str(lines[0]).split()
    (listed,) = re.findall(r"^~orders ~\{orders\}\*[^`]*", page, re.MULTILINE)
    return ["ACL", "SETUSER", "shop", "on", ">secret", "resetchannels", *listed.split()]


@pytest.mark.slow
@pytest.mark.parametrize("page", [TEXT, WORKER], ids=["production", "worker"])
@pytest.mark.parametrize("name", PEERS)
async def test_the_rights_in_the_guide_suffice_for_workers(
    peer: Callable[..., peers.Peer], name: str, page: str
) -> None:
    # Given a user as in the guide
    server = peer(name)
    async with redis.asyncio.Redis.from_url(server.url) as look:
        await look.execute_command(*_rights_of(page))
        store = Store(name, server.url.replace("redis://", "redis://shop:secret@"), look)

        # When its workers settle, fail, retry, dead-letter and delete, and publish in every way
        await work_in_every_way(store)

        # Then the server has denied no command
        refused = [entry["object"] for entry in await look.acl_log()]
    assert refused == []


def test_the_address_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "HEADWATER_URL=rediss://shop:secret@store.internal:6379" in TEXT
    monkeypatch.setenv("HEADWATER_URL", "rediss://shop:secret@store.internal:6379")
    assert App().url == "rediss://shop:secret@store.internal:6379"
