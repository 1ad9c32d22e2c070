"""`headwater doctor` says whether a store is fit for workers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.operations.doctor import Examination, examine
from tests.worker.core import Core

pytestmark = pytest.mark.slow

Run = Callable[..., str]


def wrong(printed: str) -> dict[str, str]:
    return {one["name"]: one["text"] for one in json.loads(printed) if not one["good"]}


def test_what_is_wrong_is_named(core: Core, run_headwater: Run) -> None:
    # Given a store without persistence that may evict streams
    core.client.config_set("maxmemory", 10**12)
    try:
        printed = run_headwater("doctor", "-o", "json", status=3)
    finally:
        core.client.config_set("maxmemory", 0)
    # Then it says so, and everything else is good
    assert wrong(printed).keys() == {"durability"}
    assert {one["name"] for one in json.loads(printed)} >= {
        *("connection", "server", "clock", "memory", "rights", "installed")
    }


def test_a_clock_that_differs_is_reported(core: Core) -> None:
    def found(clock: Callable[[], int]) -> Examination:
        examined: list[Examination] = core.do(examine("s", clock=clock))
        return next(one for one in examined if one.name == "clock")

    behind = found(lambda: time.time_ns() // 1_000_000 + 90_000)
    assert not behind.good
    assert "behind this machine's" in behind.text
    # But not one whose reply took long
    now = time.time_ns() // 1_000_000
    times = iter((now - 10_000, now + 10_000))
    assert found(lambda: next(times)) == Examination(
        "clock", good=True, text="the store's clock agrees with this machine's"
    )


def test_a_user_without_rights_is_reported(core: Core, url: str, run_headwater: Run) -> None:
    core.client.acl_setuser(
        "weak",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        commands=["+@all", "-xadd", "-xack"],
    )
    address = url.replace("redis://", "redis://weak:secret@")
    printed = run_headwater("doctor", "s", "-o", "json", "--url", address, status=3)
    assert wrong(printed)["rights"] == "user weak may not send xack, xadd"
    assert "secret" not in printed


def test_a_user_without_the_keys_of_a_group_is_reported(
    core: Core, url: str, run_headwater: Run
) -> None:
    # Given a user with all commands and only the stream, and the same user with the group's keys
    core.client.acl_setuser("shop", enabled=True, nopass=True, keys=["s"], commands=["+@all"])
    address = url.replace("redis://", "redis://shop:any@")
    printed = run_headwater("doctor", "s", "-o", "json", "--url", address, status=3)
    assert "user shop may not send hmget, hsetnx, hset" in wrong(printed)["rights"]
    core.client.execute_command("ACL", "SETUSER", "shop", "~{s}*")
    printed = run_headwater("doctor", "s", "-o", "json", "--url", address, status=3)
    assert wrong(printed).keys() == {"durability"}


def test_what_a_user_may_not_ask_is_unknown_and_the_rest_is_examined(
    core: Core, url: str, run_headwater: Run
) -> None:
    # Given a user who may read streams and nothing else
    core.client.acl_setuser("eve", enabled=True, nopass=True, keys=["*"], commands=["+xread"])
    address = url.replace("redis://", "redis://eve:any@")
    # Then nothing that needs another right is good, and all are named
    printed = run_headwater("doctor", "s", "-o", "json", "--url", address, status=3)
    unknown = [one["name"] for one in json.loads(printed) if one["good"] is None]
    assert unknown == [
        *("server", "clock", "memory", "durability", "writes", "replication", "rights")
    ]
    table = run_headwater("doctor", "s", "--url", address, status=3)
    assert "unknown rights user eve: the server does not say" in " ".join(table.split())
    # When the user may ask, then what is missing is named
    core.client.execute_command("ACL", "SETUSER", "eve", "+acl|dryrun", "+info", "+time")
    examined = json.loads(run_headwater("doctor", "s", "-o", "json", "--url", address, status=3))
    states = {one["name"]: one["good"] for one in examined}
    assert (states["clock"], states["memory"]) == (True, True)
    (rights,) = [one["text"] for one in examined if one["name"] == "rights"]
    assert rights.startswith("user eve may not send xreadgroup, xack, xadd")


def test_an_embedded_store_is_examined(tmp_path: Path, run_headwater: Run) -> None:
    url = f"headwater://{tmp_path / 'data'}"
    run_headwater("add", "s", "a=b", "--url", url)
    printed = run_headwater("doctor", "--url", url, "-o", "json")
    assert wrong(printed) == {}
    assert "may send everything" in printed


def test_a_store_that_is_away_is_reported(run_headwater: Run) -> None:
    printed: Any = run_headwater("doctor", "--url", "redis://127.0.0.1:1", status=3)
    assert "WRONG  connection" in printed
    assert "cannot be reached" in printed
