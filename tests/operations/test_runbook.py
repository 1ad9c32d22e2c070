"""The runbook shows what its commands print: each console example is run on a store in the state it describes."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.cli.output import UNHEALTHY
from headwater.testing.server import server_process
from tests.command_line import in_thread
from tests.guides import GUIDES
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TEXT = (GUIDES / "operations.md").read_text(encoding="utf-8")

FIRST, SECOND = "1763715599000-0", "1763715599001-0"
"""The entries of the guide's examples."""


def blocks(section: str) -> list[list[tuple[str, str]]]:
    """The console examples of a section: for each block its commands, and what each prints."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        parts = re.split(r"^\$ headwater ", block, flags=re.MULTILINE)[1:]
        found.append([(one.partition("\n")[0], one.partition("\n")[2]) for one in parts])
    assert found, section
    return found


def plain(printed: str) -> list[str]:
    """Lines without what differs from run to run: times, durations, sizes, ids that the store chose, widths."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", printed)
    text = re.sub(r"\d+ (ms|s|min|h|days)( \d+ (s|min|h))?", "DURATION", text)
    text = re.sub(r"(?<!\S)17(?!63715599)\d{11}-\d+", "ID", text)
    text = text.replace("1763715599002-0", "ID")
    text = re.sub(r"[\d,]+ bytes", "BYTES", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def runs(block: list[tuple[str, str]]) -> None:
    for command, expected in block:
        status, printed, complaint = in_thread(shlex.split(command))
        assert status in (0, UNHEALTHY), complaint
        assert plain(printed) == plain(expected.rstrip("\n")), command


@pytest.fixture
def client(url: str) -> Any:
    with redis.Redis.from_url(url) as found:
        found.xgroup_create("orders", "billing", "0", mkstream=True)
        yield found


def test_a_stuck_group(client: Any) -> None:
    client.hset("{orders}:hw:group:billing", "claim_after_ms", 1_500)
    for one in (FIRST, SECOND):
        client.xadd("orders", {"item": "tea"}, id=one)
    client.xreadgroup("billing", "web-1", {"orders": ">"})
    stuck, entry = blocks("A group is stuck")

    def silent() -> bool:
        # More than claim_after, less than twice as much: then nobody claims the entries either.
        (info,) = client.xinfo_consumers("orders", "billing")
        return bool(info["idle"] >= 1_510)

    eventually(silent, "the consumer counts as silent")
    runs(stuck)
    runs(entry)


def test_growing_lag(client: Any) -> None:
    old = int(time.time() * 1000) - 3_600_000
    client.xreadgroup("billing", "web-1", {"orders": ">"})
    client.xgroup_createconsumer("orders", "billing", "web-1")
    for n in range(3):
        client.xadd("orders", {"item": "tea"}, id=f"{old}-{n}")
    lag, reset = blocks("Lag grows")
    runs(lag)
    runs(reset)


def test_a_message_that_kills_its_worker(client: Any) -> None:
    client.xadd("orders", {"item": "tea"}, id=FIRST)
    client.xreadgroup("billing", "web-1", {"orders": ">"})
    (block,) = blocks("A message kills its worker")
    runs(block)


def test_a_machine_is_gone() -> None:
    lacking, away, two = (block for (block,) in blocks("A machine is gone"))
    with server_process() as former, server_process() as other:
        first, second = redis.Redis.from_url(former.url), redis.Redis.from_url(other.url)

        def follow() -> None:
            second.execute_command("REPLICAOF", "127.0.0.1", former.port)
            eventually(lambda: second.info("replication")["master_link_status"] == "up")
            eventually(lambda: behind(first) == 0, "the replica has everything")

        def shown(example: tuple[str, str]) -> None:
            """Run an example with the addresses of this test."""
            words, expected = example
            for there, here in (("10.0.0.2:6379", former.port), ("10.0.0.3:6379", other.port)):
                words, expected = (
                    one.replace(there, f"127.0.0.1:{here}") for one in (words, expected)
                )
            status, printed, complaint = in_thread(shlex.split(words))
            assert status == UNHEALTHY, complaint
            found = [
                re.sub(r"offset [\d,]+|(?<=online )[\d,]+", "OFFSET", one) for one in plain(printed)
            ]
            wanted = plain(expected.rstrip("\n"))
            assert found == [
                re.sub(r"offset [\d,]+|(?<=online )[\d,]+", "OFFSET", one) for one in wanted
            ]

        # Given a primary that requires two replicas and has one
        first.xadd("orders", {"item": "tea"})
        follow()
        first.config_set("synchronous-replicas", 2)
        shown(lacking)
        # And one that was cut off, went on, and has the changes that its former replica lacks
        first.config_set("synchronous-replicas", 0)
        second.execute_command("REPLICAOF", "NO", "ONE")
        for client in (first, second):
            client.xadd("orders", {"item": "tea"})
        shown(two)
        # And a replica whose primary is gone
        follow()
        former.kill()
        eventually(lambda: second.info("replication").get("master_link_down_since_seconds"))
        shown(away)


def behind(client: Any) -> int:
    """Bytes that the replica of a primary has not acknowledged."""
    about = client.info("replication")
    replica = about.get("slave0", {})
    return int(about["master_repl_offset"] - replica.get("offset", -1))


def test_history_check_and_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headwater: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with server_process("--appendfsync", "always") as server:
        (tmp_path / "data").symlink_to(server.data)
        with redis.Redis.from_url(server.url) as client:
            client.xadd("orders", {"item": "tea"}, id=FIRST)
            client.xgroup_create("orders", "billing", "0")
            client.xreadgroup("billing", "web-1", {"orders": ">"})
            moment: Any = client.time()
            time.sleep(0.005)
            client.xclaim("orders", "billing", "web-2", 0, [FIRST])
            ((history,),) = blocks("What happened to an entry")
            runs([history])
        backup, restore = blocks("Backup, restore, time travel")[0]
        runs([backup])
        at = str(moment[0] * 1000 + moment[1] // 1000)
        runs([(restore[0].replace("2025-11-21T09:00:00Z", at), restore[1])])
    # The server has ended: its directory can be checked
    (tmp_path / "data").unlink()
    (tmp_path / "monday").rename(tmp_path / "data")
    (block,) = blocks("Damage")
    runs(block)


def test_every_command_that_the_guide_names_exists(run_headwater: Callable[..., str]) -> None:
    named = set(
        re.findall(
            r"`headwater ([a-z]+(?: (?:list|show|replay|drop|release|claim|ack|bury|reap))?)", TEXT
        )
    )
    assert {"explain", "streams list", "exporter", "history", "check", "tail"} <= named
    for command in named:
        run_headwater(*command.split(), "--help")
