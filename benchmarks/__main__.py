"""``make bench``: XADD, XRANGE, XREADGROUP + XACK against a real redis-server 8.2.3.

The two servers run in the same process tree, pinned to one core, and are measured in turn, round
after round, so that a machine whose speed drifts treats them alike. Prints a table, writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import headwater
from benchmarks.stores import Store, cores, measured_stores
from benchmarks.workloads import WORKLOADS, Workload
from headwater._build import hot_modules
from headwater.cli.info import describe

RESULTS = Path("artifacts", "bench.json")


def build_kind() -> str:
    """``compiled (12 modules)`` or ``plain``."""
    return describe(hot_modules(Path(headwater.__file__).parent))


class Series:
    """The rounds of one workload on one store."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.cpu_us: list[float] = []

    def add(self, store: Store, workload: Workload, seconds: float) -> None:
        before = store.cpu_seconds()
        operations, taken = workload.run(store, seconds)
        self.rates.append(operations / taken)
        self.cpu_us.append((store.cpu_seconds() - before) / max(1, operations) * 1e6)

    def row(self) -> dict[str, object]:
        return {
            "operations_per_second": [round(rate) for rate in self.rates],
            "median_operations_per_second": round(statistics.median(self.rates)),
            "server_cpu_us_per_operation": round(statistics.median(self.cpu_us), 3),
        }


def measure(rounds: int, seconds: float) -> dict[str, dict[str, Series]]:
    """All workloads, store by store in turn."""
    found: dict[str, dict[str, Series]] = {}
    for fsync, workloads in groupby(WORKLOADS, key=lambda workload: workload.fsync):
        with measured_stores(fsync) as stores:
            for workload in workloads:
                series = {store.name: Series() for store in stores}
                for _ in range(rounds):
                    for store in stores:
                        series[store.name].add(store, workload, seconds)
                found[workload.name] = series
                print_row(workload.name, series)
    return found


def print_row(name: str, series: dict[str, Series]) -> None:
    redis, ours = series.values()
    rate = statistics.median(ours.rates) / statistics.median(redis.rates)
    spread = (max(ours.rates) - min(ours.rates)) / statistics.median(ours.rates)
    cpu = statistics.median(redis.cpu_us) / max(1e-9, statistics.median(ours.cpu_us))
    print(
        f"{name:<40} {statistics.median(redis.rates):>12,.0f} {statistics.median(ours.rates):>12,.0f}"
        f" {rate:>7.2f} {cpu:>9.2f} {spread:>7.0%}",
        flush=True,
    )


def as_json(found: dict[str, dict[str, Series]]) -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "build": build_kind(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "workloads": {
            name: {store: one.row() for store, one in series.items()}
            for name, series in found.items()
        },
    }


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (default 5)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement (default 2)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"JSON file ({RESULTS})")
    options = parser.parse_args(list(words) if words is not None else sys.argv[1:])
    os.sched_setaffinity(0, {cores()[1]})
    print(f"headwater ({build_kind()}) beside redis 8.2.3, median of {options.rounds}")
    print(f"{'':<40} {'redis/s':>12} {'ours/s':>12} {'ratio':>7} {'cpu ratio':>9} {'spread':>7}")
    found = measure(options.rounds, options.seconds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(as_json(found), indent=2) + "\n")
    print(f"cpu ratio is redis's processor time per operation over ours; written: {options.output}")


if __name__ == "__main__":
    main()
