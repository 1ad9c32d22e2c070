"""The server's processor time for one call of a Lua script (EVALSHA), compared with Redis in the same run.

A part of ``make bench-scale``; alone: ``python -m benchmarks.scripts``. A row's ratio is the median of the
rounds' ratios. The last row calls one script `CALLS` times and measures only the last calls: if each call
leaked, they would cost more than the first ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from typing import Final, NamedTuple

from benchmarks import machine
from benchmarks.load import request
from benchmarks.rows import OURS, REDIS
from benchmarks.stores import WITH_REDIS, Store, cores, measured

REQUIRED: Final = 2.0
"""The highest permitted ratio to the processor time of a call in Redis."""

ROUNDS: Final = 3
SECONDS: Final = 0.5
"""The duration of one measurement."""

CALLS: Final = 100_000
PIPELINE: Final = 16


class Case(NamedTuple):
    """A script; ``words``, which are its numkeys, keys and arguments; and how it is sent.

    ``judged`` is false if the row has no verdict: its script spends most of the time in other commands, or is
    pipelined, so that hardly any time goes to sockets and the row compares Python with C.
    """

    name: str
    script: bytes
    words: tuple[bytes, ...]
    connections: int = 50
    pipeline: int = 1
    judged: bool = True


INCREMENT: Final = b"return redis.call('INCR', KEYS[1])"
APPEND: Final = b"return redis.call('XADD', KEYS[1], 'MAXLEN', '~', 1000, '*', 'field', ARGV[1])"
RELEASE: Final = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end
"""
MOVE: Final = b"""
local items = redis.call('LRANGE', KEYS[1], 0, 9)
for index, item in ipairs(items) do redis.call('SET', KEYS[2] .. index, item) end
return items
"""

CASES: Final = (
    Case("return 1, c=50", b"return 1", (b"0",)),
    Case("INCR, c=50", INCREMENT, (b"1", b"n")),
    Case("XADD, c=50", APPEND, (b"1", b"s", b"v")),
    Case("release a lock, c=50", RELEASE, (b"1", b"lock", b"mine")),
    Case("XADD, c=50 P=16", APPEND, (b"1", b"s", b"v"), pipeline=PIPELINE, judged=False),
    Case("LRANGE and 10 SET, c=50", MOVE, (b"2", b"list", b"copy:"), judged=False),
)


class Cost(NamedTuple):
    """A row: microseconds of processor time per call, in Headwater and in Redis."""

    name: str
    ours_us: float
    redis_us: float
    ratio: float
    judged: bool = True

    @property
    def passes(self) -> bool:
        """Whether the ratio is at most `REQUIRED`. True also if the row has no verdict."""
        return self.ratio <= REQUIRED or not self.judged

    def __str__(self) -> str:
        verdict = ("ok" if self.passes else "FAIL") if self.judged else ""
        return (
            f"{verdict:<4} {self.name:<28} {self.ours_us:7.2f} µs, "
            f"{self.redis_us:7.2f} µs of {REDIS}: {self.ratio:5.2f} times"
        )


def _call(store: Store, case: Case) -> bytes:
    """Load a case's script, fill its keys, and return its EVALSHA."""
    with store.client() as client:
        client.delete("list", "n", "s")
        client.rpush("list", *range(10))
        client.set(
            "lock", "other"
        )  # not the caller's, so no call deletes it and all calls cost the same
        sha = str(client.script_load(case.script)).encode()
    return request(b"EVALSHA", sha, *case.words)


def _cost(
    name: str, stores: list[Store], samples: list[list[float]], *, judged: bool = True
) -> Cost:
    """Return a row from the µs per call of each round; ``samples`` has a list for each of ``stores``."""
    ours, theirs = (samples[[one.name for one in stores].index(kind)] for kind in (OURS, REDIS))
    ratio = statistics.median(mine / peer for mine, peer in zip(ours, theirs, strict=True))
    return Cost(name, statistics.median(ours), statistics.median(theirs), ratio, judged)


def measure(stores: list[Store], *, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Cost]:
    """Measure and print a row for each case; the stores are measured in turn."""
    rows = []
    for case in CASES:
        samples: list[list[float]] = [[] for _ in stores]
        calls = [_call(store, case) for store in stores]
        for _ in range(rounds):
            for store, call, found in zip(stores, calls, samples, strict=True):
                sent = (seconds, case.connections, case.pipeline)
                found.append(store.load("repeat", *sent, requests=[call]).cpu_us)
        rows.append(_cost(case.name, stores, samples, judged=case.judged))
        print(rows[-1], flush=True)
    return rows


def measure_calls(stores: list[Store], *, calls: int = CALLS) -> Cost:
    """Call INCR in a script ``calls`` times on each store, and return the cost of the last three tenths.

    Prints the first and the last tenth: they cost the same, unless calls leak.
    """
    samples: list[list[float]] = [[] for _ in stores]
    for store, found in zip(stores, samples, strict=True):
        call = _call(store, CASES[1])
        part = calls // 10
        parts = [store.load("times", part, 1, 1, requests=[call]).cpu_us for _ in range(10)]
        print(f"     {store.name}: {parts[0]:.2f} µs a call at first, {parts[-1]:.2f} at the end")
        found.append(statistics.median(parts[-3:]))
    row = _cost(f"INCR, last of {calls:,} calls", stores, samples)
    print(row, flush=True)
    return row


def costs() -> list[Cost]:
    """Measure and return all rows; none if Redis is missing. Runs on the client's core."""
    if not all(kind.available() for kind in WITH_REDIS):
        print(f"{REDIS} is missing (make peers): scripts are not measured", file=sys.stderr)
        return []
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores()[1]})
    try:
        with measured(WITH_REDIS) as stores:
            return [*measure(stores), measure_calls(stores)]
    finally:
        os.sched_setaffinity(0, mine)


def main() -> int:
    """Measure. Returns 0 if every row is within its bound, 1 if not, 2 if Redis is missing."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"headwater {machine.build_kind()}; processor time of one EVALSHA")
    rows = costs()
    if not rows:
        return 2
    return 0 if all(row.passes for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
