"""``make connections``: ten thousand connections, idle and blocked.

    python -m benchmarks.connections --connections 1000 --rounds 1

For each store, with server and clients on separate cores, it measures:

- the memory of the server's process with that many idle connections, each of which has sent one command
- ten thousand connections blocked in XREAD on one stream and woken by one entry: the time until the
  last one has it, three times
- ten thousand blocked in XREADGROUP, each on its own stream and woken by one entry
- a thousand blocked in one group of one stream and woken by a thousand entries: each gets another entry
- the latency of another client during this time, a process that sends PING all the time

The program reads sockets with epoll; its own processor time (``judge``) is reported too. Writes
artifacts/connections.json, and a line to campaigns/connections.jsonl. Exits with 1 if a client was not
served, or if a bound is broken (``--judge``: the bounds for 10,000 connections and the compiled build).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks.crowd import SECONDS, Control, Crowd
from benchmarks.machine import build_kind, commit, describe_machine
from headwater.testing.node import request
from headwater.testing.server import server_process
from tests import campaigns, peers
from tests.campaigns import Outcome

ARTIFACT: Final = Path(__file__).resolve().parents[1] / "artifacts" / "connections.json"
STORES: Final = ("headwater", "redis-8.2")
CONNECTIONS: Final = 10_000
CORES: Final = os.sched_getaffinity(0)
ONE_GROUP: Final = 1000
"""Readers of one group. Redis serves all of them again for every entry, which is quadratic."""

BATCH: Final = 1000
"""Entries added by one pipeline."""

SPARE: Final = 200
"""File descriptors needed in addition to the connections, in each process."""

MOST_IDLE_MB: Final = 100.0
MOST_WAKE_S: Final = 0.5
ENTRY: Final = re.compile(rb"\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nf\r\n\$5\r\nvalue\r\n$")


class Server:
    """A store under measurement."""

    def __init__(self, name: str, pid: int, port: int) -> None:
        self.name, self.pid, self.port = name, pid, port

    def rss_mb(self) -> float:
        """Return the resident memory of the process, in millions of bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6

    def cpu_s(self) -> float:
        """Return the processor time used so far by all threads, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(name: str, connections: int) -> Iterator[Server]:
    """Run a store without a journal, pinned to the first core; this process uses the last one."""
    most = str(connections + SPARE)
    if name == "headwater":
        with server_process("--appendonly", "no", "--save", "", "--maxclients", most) as ours:
            yield pinned(Server(name, ours.pid, ours.port))
    else:
        with peers.running(name, "--maxclients", most) as peer:
            yield pinned(Server(name, peer.pid, peer.port))


def pinned(server: Server) -> Server:
    os.sched_setaffinity(server.pid, {min(CORES)})
    return server


def send_pings(port: int, ends: Connection) -> None:
    """Send PINGs until a message arrives at ``ends``, at least one, then send back the latencies in seconds.
    Runs in a separate process."""
    latencies: list[float] = []
    with closing(Control(port)) as control:
        ends.send("started")
        while not latencies or not ends.poll():
            begun = time.monotonic()
            control.ask("PING")
            latencies.append(time.monotonic() - begun)
            time.sleep(0.0005)
    ends.send(latencies)


@contextmanager
def another_client(port: int, waits: list[float]) -> Iterator[None]:
    """Run another client inside the block, and append its latencies in milliseconds to ``waits``."""
    context = get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=send_pings, args=(port, there), daemon=True)
    child.start()
    here.recv()
    try:
        yield
    finally:
        here.send("end")
        waits += [took * 1000 for took in here.recv()]
        child.join()
        child.close()
        here.close()
        there.close()


class Scenario:
    """A server, the clients that block, and the client that adds entries."""

    def __init__(self, server: Server, crowd: Crowd, control: Control) -> None:
        self.server, self.crowd, self.control = server, crowd, control

    def woken(
        self, asked: Callable[[int], bytes], added: list[str], *, count: int
    ) -> dict[str, Any]:
        """Block ``count`` clients, add an entry to each stream of ``added``, and measure which clients are
        served and when."""
        self._block(asked, count)
        rss, waits = self.server.rss_mb(), list[float]()
        with another_client(self.server.port, waits):
            cpu, own = self.server.cpu_s(), time.process_time()
            begun = time.monotonic()
            adding = threading.Thread(target=self._add, args=(added,))
            adding.start()
            answers, times = self.crowd.answers(
                lambda answer: ENTRY.search(answer) is not None, count
            )
            adding.join()
            taken, own_taken = self.server.cpu_s() - cpu, time.process_time() - own
        entries = {match[0] for match in map(ENTRY.search, answers.values()) if match}
        seconds = [at - begun for at in times] or [0.0]
        return {
            "served": len(answers),
            "asked": count,
            "different": len(entries),
            "blocked_rss_mb": round(rss, 1),
            "first_s": round(min(seconds), 4),
            "half_s": round(statistics.median(seconds), 4),
            "all_s": round(max(seconds), 4),
            "server_cpu_s": round(taken, 3),
            "judge_cpu_s": round(own_taken, 3),
            "others_p50_ms": round(statistics.median(waits), 2),
            "others_worst_ms": round(max(waits), 2),
        }

    def _block(self, asked: Callable[[int], bytes], count: int) -> None:
        self.crowd.ask(asked, count)
        deadline = time.monotonic() + SECONDS
        while self.control.number("clients", "blocked_clients") < count:
            assert time.monotonic() < deadline, "not all clients are blocked"
            time.sleep(0.05)

    def _add(self, streams: list[str]) -> None:
        """Add entries in pipelines, and read the replies, for which a server may be waiting."""
        for start in range(0, len(streams), BATCH):
            batch = streams[start : start + BATCH]
            requests = (request(("XADD", name, "*", "f", "value")) for name in batch)
            self.control.socket.sendall(b"".join(requests))
            for _ in range(2 * len(batch)):
                self.control.file.readline()


def measure(name: str, connections: int, rounds: int) -> dict[str, Any]:
    """Return all measurements of one store."""
    with (
        running(name, connections) as server,
        closing(Control(server.port)) as control,
        closing(Crowd(server.port)) as crowd,
    ):
        control.ask("PING")
        empty = server.rss_mb()
        begun = time.monotonic()
        crowd.connect(connections)
        connected = time.monotonic() - begun
        ping = request(("PING",))
        crowd.ask(lambda _number: ping, connections)
        answers, _ = crowd.answers(lambda answer: answer == b"+PONG\r\n", connections)
        idle = server.rss_mb()
        waits: list[float] = []
        with another_client(server.port, waits):
            time.sleep(1.0)
        scenarios = scenarios_of(Scenario(server, crowd, control), connections, rounds)
    return {
        "store": name,
        "connections": connections,
        "answered": len(answers),
        "connect_s": round(connected, 3),
        "empty_rss_mb": round(empty, 1),
        "idle_rss_mb": round(idle, 1),
        "bytes_a_connection": round((idle - empty) * 1e6 / connections),
        "others_idle_p50_ms": round(statistics.median(waits), 3),
        "others_idle_worst_ms": round(max(waits), 2),
        "woken": scenarios,
    }


def scenarios_of(
    scenario: Scenario, connections: int, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Measure each way of waking clients, ``rounds`` times."""
    few = min(connections, ONE_GROUP)
    own = [f"stream:{number}" for number in range(connections)]
    for name in ("stream", *own):
        scenario.control.ask("XGROUP", "CREATE", name, "g", "$", "MKSTREAM")
    read = request(("XREAD", "BLOCK", 0, "STREAMS", "stream", "$"))
    ways: dict[str, tuple[Callable[[int], bytes], list[str], int]] = {
        "one entry for all": (lambda _number: read, ["stream"], connections),
        "one each, own streams": (lambda number: reader(own[number], number), own, connections),
        "one each, one group": (lambda number: reader("shared", number), ["shared"] * few, few),
    }
    found = {}
    scenario.control.ask("XGROUP", "CREATE", "shared", "g", "$", "MKSTREAM")
    for name, (asked, added, count) in ways.items():
        found[name] = [scenario.woken(asked, added, count=count) for _ in range(rounds)]
    return found


def reader(stream: str, number: int) -> bytes:
    """Return a blocking XREADGROUP; each connection is another consumer."""
    words = ("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", 1, "BLOCK", 0)
    return request((*words, "STREAMS", stream, ">"))


def faults(found: dict[str, Any]) -> list[str]:
    """Return a line for each way in which clients were not served, or received another client's entry."""
    count, name = found["connections"], found["store"]
    wrong = [] if found["answered"] == count else [f"{name}: {found['answered']} idle answered"]
    for way, rounds in found["woken"].items():
        wrong += [
            f"{name}: {way}: {one['served']} of {one['asked']} served"
            for one in rounds
            if one["served"] != one["asked"]
        ]
        if way == "one each, one group":
            wrong += [
                f"{name}: {way}: {one['different']} different entries to {one['served']}"
                for one in rounds
                if one["different"] != one["served"]
            ]
    return wrong


def over_bounds(found: dict[str, Any]) -> list[str]:
    """Return a line for each broken bound."""
    wrong = []
    if found["idle_rss_mb"] > MOST_IDLE_MB:
        wrong.append(f"{found['idle_rss_mb']} MB with idle connections, bound {MOST_IDLE_MB}")
    wake = statistics.median(one["all_s"] for one in found["woken"]["one entry for all"])
    if wake > MOST_WAKE_S:
        wrong.append(f"{wake} s until all blocked readers were served, bound {MOST_WAKE_S}")
    return wrong


def show(found: dict[str, Any]) -> None:
    """Print the measurements of a store."""
    print(
        f"{found['store']}: {found['idle_rss_mb']} MB with {found['connections']} idle connections, "
        f"{found['bytes_a_connection']} bytes each; others p50 {found['others_idle_p50_ms']} ms"
    )
    for way, rounds in found["woken"].items():
        middle = {
            key: statistics.median(one[key] for one in rounds)
            for key in ("all_s", "server_cpu_s", "judge_cpu_s", "others_p50_ms", "others_worst_ms")
        }
        print(
            f"  {way}: {rounds[0]['asked']} served after {middle['all_s']:.3f} s (server {middle['server_cpu_s']:.2f} s "
            f"of processor time, judge {middle['judge_cpu_s']:.2f} s), blocked "
            f"{rounds[0]['blocked_rss_mb']} MB; others p50 {middle['others_p50_ms']} ms, worst "
            f"{middle['others_worst_ms']} ms"
        )


def main() -> int:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=STORES)
    parser.add_argument("--judge", action="store_true", help="check the bounds for 10,000")
    wanted = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted.connections + SPARE:
        print(f"{wanted.connections} connections need more open files than the limit of {hard}")
        return 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {max(CORES)})
    report: dict[str, Any] = {
        "build": build_kind(),
        "commit": commit(),
        "machine": describe_machine(),
        "load_before": os.getloadavg()[0],
        "stores": [],
    }
    wrong: list[str] = []
    began = time.monotonic()
    for name in STORES if wanted.only is None else (wanted.only,):
        found = measure(name, wanted.connections, wanted.rounds)
        report["stores"].append(found)
        show(found)
        wrong += faults(found)
        if wanted.judge and name == "headwater":
            wrong += over_bounds(found)
    report["faults"] = wrong
    ARTIFACT.parent.mkdir(exist_ok=True)
    ARTIFACT.write_text(json.dumps(report, indent=2) + "\n")
    trials = wanted.connections * wanted.rounds * len(report["stores"])
    seconds = time.monotonic() - began
    part = "idle and blocked, with peers" if wanted.only is None else f"on {wanted.only}"
    outcome = Outcome(part, None, trials, "connections", wrong, seconds)
    campaigns.record("connections", outcome)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
