"""SIGKILL of a real server under load with appendfsync always: nothing acknowledged is lost.

Four clients write, read in a group and acknowledge. Each records which of its commands were answered. The
server is killed after a random number of replies (from a seeded generator) and restarted on the same data.
Then its data is compared with what was answered.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.testing.server import ServerProcess, server_process
from tests import campaigns
from tests.alarms import alarms_in
from tests.campaigns import Outcome
from tests.samples import sampled

CLIENTS = 4


def connection(server: ServerProcess) -> redis.Redis:
    """Return a client that sends every command once."""
    return redis.Redis.from_url(server.url, decode_responses=True, retry=Retry(NoBackoff(), 0))


class Writer:
    """One client of stream ``s<n>`` and group ``g``: what was answered, and what may have happened."""

    def __init__(self, number: int) -> None:
        self.stream = f"s{number}"
        self.sent = 0
        self.added: dict[str, int] = {}
        """The id of every answered XADD → its serial number."""
        self.acked: set[str] = set()
        """Ids whose XACK was answered."""
        self.maybe_acked: set[str] = set()
        """Ids whose XACK was sent and not answered."""

    def step(self, client: redis.Redis, rng: random.Random) -> None:
        """Run one command. Raises `redis.ConnectionError` if the server is gone."""
        if rng.random() < 0.7:
            serial, self.sent = self.sent, self.sent + 1
            entry_id = client.xadd(self.stream, {"n": serial, "pad": "x" * rng.randrange(300)})
            self.added[str(entry_id)] = serial
            return
        reply: Any = client.xreadgroup("g", "c", {self.stream: ">"}, count=5)
        for _stream, entries in reply.items() if isinstance(reply, dict) else reply or []:
            ids = [entry[0] for entry in entries]
            self.maybe_acked.update(ids)
            client.xack(self.stream, "g", *ids)
            self.acked.update(ids)
            self.maybe_acked.difference_update(ids)

    def settle(self, client: redis.Redis) -> list[str]:
        """Compare with the server's data after its restart. Return a sentence for each fault."""
        wrong = []
        entries: Any = client.xrange(self.stream)
        held = {entry_id: int(fields["n"]) for entry_id, fields in entries}
        for entry_id, serial in self.added.items():
            if held.get(entry_id) != serial:
                wrong.append(f"{self.stream}: answered entry {entry_id} ({serial}) is lost")
        serials = list(held.values())
        if serials != list(range(len(serials))):
            wrong.append(f"{self.stream}: the stored entries are not a prefix of those sent")
        if len(held) > len(self.added) + 1:
            wrong.append(f"{self.stream}: more entries than were sent")
        rows: Any = client.xpending_range(self.stream, "g", "-", "+", 1_000_000)
        pending = {row["message_id"] for row in rows}
        wrong += [
            f"{self.stream}: {entry_id} was acknowledged and is pending"
            for entry_id in self.acked & pending
        ]
        self.sent = len(held)
        self.added = held
        return wrong


def load(server: ServerProcess, writers: list[Writer], seed: int, answers: int) -> None:
    """Run all writers until ``answers`` commands were answered, then kill the server."""
    left = threading.Semaphore(0)

    def work(writer: Writer) -> None:
        rng = random.Random(f"{seed}-{writer.stream}")
        with connection(server) as client:
            try:
                while True:
                    writer.step(client, rng)
                    left.release()
            except redis.ConnectionError:
                return

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for _ in range(answers):
        left.acquire()
    server.kill()
    for thread in threads:
        thread.join()


def kill_points(points: int, seed: int) -> list[str]:
    """Kill a server under load ``points`` times with the same data directory. Return all faults."""
    rng = random.Random(seed)
    writers = [Writer(number) for number in range(CLIENTS)]
    wrong: list[str] = []
    with server_process("--appendfsync", "always") as server:
        with connection(server) as client:
            for writer in writers:
                client.xgroup_create(writer.stream, "g", id="0", mkstream=True)
        for point in range(points):
            load(server, writers, seed + point, rng.randrange(1, 400))
            server.start()
            with connection(server) as client:
                for writer in writers:
                    wrong += [f"point {point}: {what}" for what in writer.settle(client)]
        wrong += [f"a false alarm: {line}" for line in alarms_in(server.log())]
    return wrong


@pytest.mark.slow
def test_a_server_killed_under_load_loses_nothing_it_acknowledged() -> None:
    # Given four clients that write, when the server is killed at five random points
    wrong = kill_points(5, seed=20261121)

    # Then every answered command is there after each restart, and the rest is a prefix
    assert wrong == []


@pytest.mark.slice
@pytest.mark.timeout(400)
def test_kills_under_load_lose_nothing() -> None:
    # Given random points
    seed, points = random.SystemRandom().randrange(2**32), sampled(20)

    # When the server is killed at each
    began = time.monotonic()
    wrong = kill_points(points, seed)

    # Then nothing is lost, and the run is recorded
    outcome = Outcome("kills", (seed, seed), points, "kills", wrong, time.monotonic() - began)
    campaigns.record("crash", outcome, directory=campaigns.SLICE)
    assert wrong == [], f"seed {seed}"
