"""`headwater history` says what happened to an entry, as its driver did it, across kills, rotations and images."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.common.model import StreamID
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.history import EntryEvent, What, entry_history
from headwater.testing.server import server_process
from tests.samples import sampled

pytestmark = pytest.mark.slow

Run = Callable[..., str]

Row = tuple[str, str, int | None]
"""What happened, the consumer, the deliveries."""

CONSUMERS = ("ann", "bob", "eve")

HOUR_MS = 3_600_000


class Driver:
    """Runs random commands on stream ``s`` with group ``g`` and logs what they do to each entry."""

    def __init__(self, client: redis.Redis, chance: random.Random) -> None:
        self.client = client
        self.log: dict[bytes, list[Row]] = defaultdict(list)
        self._chance = chance
        self._pending: dict[bytes, tuple[str, int]] = {}
        client.xgroup_create("s", "g", "0", mkstream=True)

    def step(self) -> None:
        step = self._chance.choice(
            [
                self.add,
                self.add,
                self.read,
                self.read,
                self.ack,
                self.claim,
                self.hand_back,
                self.delay,
                self.bury,
            ]
        )
        step()

    def add(self) -> None:
        added: Any = self.client.xadd("s", {"n": self._chance.random()})
        self.log[added].append(("added", "", None))

    def read(self) -> None:
        name = self._chance.choice(CONSUMERS)
        reply: Any = self.client.xreadgroup("g", name, {"s": ">"}, count=self._chance.randint(1, 4))
        for entry_id, _fields in reply[0][1] if reply else ():
            self._pending[entry_id] = name, 1
            self.log[entry_id].append(("delivered", name, 1))

    def ack(self) -> None:
        self._end("acknowledged", lambda one, _owner: self.client.xack("s", "g", one))

    def bury(self) -> None:
        def settle(one: bytes, owner: str) -> None:
            words: list[Any] = ["XSETTLE", "s", "g", owner, "ACK", "IDS", 1, one]
            words += ["TO", "{s}.dead", "*", "FIELDS", 1, "hw.id", one]
            self.client.execute_command(*words)

        self._end("dead-lettered", settle)

    def claim(self) -> None:
        one = self._one()
        if one is None:
            return
        name = self._chance.choice(CONSUMERS)
        _owner, count = self._pending[one]
        taken: Any = self.client.xclaim("s", "g", name, 0, [one])
        if taken:
            self._pending[one] = name, count + 1
            self.log[one].append(("claimed", name, count + 1))

    def hand_back(self) -> None:
        one = self._one()
        if one is not None:
            _owner, count = self._pending.pop(one)
            self.client.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, one)
            self.log[one].append(("released", "", count))

    def delay(self) -> None:
        one = self._one()
        if one is not None:
            owner, count = self._pending.pop(one)
            words = ["XSETTLE", "s", "g", owner, "FAIL", "DELAY", HOUR_MS, "IDS", 1, one]
            self.client.execute_command(*words)
            self.log[one].append(("delayed", "", count))

    def _end(self, what: str, settle: Callable[[bytes, str], Any]) -> None:
        one = self._one()
        if one is not None:
            owner, count = self._pending.pop(one)
            settle(one, owner)
            self.log[one].append((what, owner, count))

    def _one(self) -> bytes | None:
        return self._chance.choice(list(self._pending)) if self._pending else None


def rows(events: list[EntryEvent]) -> list[Row]:
    return [(one.what.value, one.consumer, one.deliveries) for one in events]


LONG = pytest.param(sampled(20_000), marks=[pytest.mark.slice, pytest.mark.timeout(600)])


@pytest.mark.parametrize("commands", [3_000, LONG])
def test_the_history_of_every_entry_is_the_drivers_own_log(commands: int) -> None:
    # Given random commands with kills, rotations and images between them, and a retention
    chance = random.Random(20)
    kills = set(chance.sample(range(commands), 4))
    images = set(chance.sample(range(commands), 12))
    with server_process("--appendfsync", "always", "--journal-retention", "1d") as server:
        with redis.Redis.from_url(server.url) as client:
            driver = Driver(client, chance)
            for number in range(commands):
                if number in kills:
                    server.kill()
                    server.start()
                if number in images:
                    client.save()
                driver.step()
        # Then the history of each entry equals the driver's log, while the server runs
        files = DiskFiles(server.data)
        for entry_id in chance.sample(list(driver.log), 60):
            found = entry_history(files, b"s", StreamID.parse(entry_id))
            assert rows(found.events) == driver.log[entry_id], entry_id
        assert entry_history(files, b"s", StreamID(1, 1)).begins_ms is None


def test_the_history_begins_with_the_last_image(tmp_path: Path, run_headwater: Run) -> None:
    # Given an entry that is delivered before an image was written, and claimed after it
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xgroup_create("s", "g", "0", mkstream=True)
            added: Any = client.xadd("s", {"n": 1})
            client.xreadgroup("g", "ann", {"s": ">"})
            client.save()
            client.xclaim("s", "g", "bob", 0, [added])
        # Then the history says where it begins, what was so then, and what happened since
        words = ("history", "s", added.decode(), "--dir", str(server.data))
        printed = run_headwater(*words)
        found = json.loads(run_headwater(*words, "-o", "json"))
    assert "since the image of" in printed.splitlines()[0]
    assert [(one["what"], one["consumer"], one["deliveries"]) for one in found] == [
        ("there", "", None),
        ("pending", "ann", 1),
        ("claimed", "bob", 2),
    ]


def test_what_concerns_the_stream_and_the_group_is_in_the_history(tmp_path: Path) -> None:
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            # Given entries that are read without acknowledging, skipped, dropped with their consumer, deleted,
            # trimmed, and lost with their group and their stream
            ids: list[Any] = [client.xadd("s", {"n": n}) for n in range(4)]
            client.xgroup_create("s", "g", "0")
            client.xreadgroup("g", "ann", {"s": ">"}, count=1, noack=True)
            client.xreadgroup("g", "ann", {"s": ">"}, count=1)
            client.xgroup_delconsumer("s", "g", "ann")
            client.xgroup_setid("s", "g", "$")
            client.xdel("s", ids[2])
            client.xtrim("s", minid=ids[1], approximate=False)
            client.xgroup_destroy("s", "g")
            client.delete("s")
        files = DiskFiles(server.data)

        def what(entry_id: bytes) -> list[str]:
            return [
                one.what.value
                for one in entry_history(files, b"s", StreamID.parse(entry_id)).events
            ]

        # Then each history says so
        assert what(ids[0]) == [
            "added",
            "read without acknowledging",
            "trimmed",
            "group gone",
            "stream gone",
        ]
        assert what(ids[1]) == ["added", "delivered", "dropped", "group gone", "stream gone"]
        assert what(ids[2]) == ["added", "skipped", "deleted", "group gone", "stream gone"]
        assert what(ids[3]) == ["added", "skipped", "group gone", "stream gone"]


def test_a_delayed_entry_has_its_due_time(tmp_path: Path) -> None:
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xgroup_create("s", "g", "0", mkstream=True)
            added: Any = client.xadd("s", {"n": 1})
            client.xreadgroup("g", "ann", {"s": ">"})
            client.execute_command(
                *("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", HOUR_MS, "IDS", 1, added)
            )
        found = entry_history(DiskFiles(server.data), b"s", StreamID.parse(added))
    last = found.events[-1]
    assert last.what is What.DELAYED
    assert last.due_ms is not None
    assert abs(last.due_ms - last.at_ms - HOUR_MS) < 1_000


def test_an_unknown_directory_or_entry_is_an_answer(tmp_path: Path, run_headwater: Run) -> None:
    missing = str(tmp_path / "none")
    assert "no directory" in run_headwater("history", "s", "1-1", "--dir", missing, status=1)
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 1})
        printed = run_headwater("history", "s", "1-1", "--dir", str(server.data))
    assert printed == "nothing happened to s 1-1 since the store began\n"
