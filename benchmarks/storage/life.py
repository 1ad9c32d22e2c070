"""``make life``: the life of a stream that does not fit in memory, with memory and disk over time.

    write ──▶ start again ──▶ walk ──▶ trim to half, in steps ──▶ trim to a hundredth ──▶ check

The server has its default settings. A sampler notes its resident memory and the size of its directory; the walk
reads every entry. Each phase but the walk ends with a checkpoint; the check recovers the directory in this
process, and looks for faults of the state and of every entry that is left. Writes JSON to
benchmarks/results/life/ and a plot for the docs. Exits with 1 if an entry is missing or out of order, if a
trim takes longer than `TRIM_MS`, or if the check finds a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks import results
from benchmarks.storage.files import allocated_bytes
from benchmarks.storage.repeating import repeated
from benchmarks.storage.rewriting import rewrite_after
from benchmarks.storage.servers import FAILURES, StoredServer, Unmeasured, fill, stored
from benchmarks.stores import HEADWATER, Store, durability
from benchmarks.workloads import FIELDS_5
from headwater.demo.plots import BLUE, ORANGE, render
from headwater.engine.check import broken_invariants
from headwater.journal.disk.files import DiskFiles
from headwater.journal.log.journal import Journal
from headwater.persistence.replaying import recovered_keyspace

KEY: Final = "history"
DIRECTORY: Final = results.DIRECTORY / "life"
PLOT: Final = Path("docs", "reference", "life.svg")

TRIM_MS: Final = 50.0
"""The longest time that a trim may take, and XINFO STREAM."""

_WALK_COUNT: Final = 1000
_WALK_AT_ONCE: Final = 16
_SAMPLE_SECONDS: Final = 1.0
_TRIM_STEPS: Final = 10
_LEFT_OF: Final = 100


class Life:
    """The samples and figures of one run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server: StoredServer | None = None
        self.began = time.monotonic()
        self.samples: list[tuple[float, float, float]] = []
        """Seconds, resident MiB, MiB of the directory."""
        self.phases: list[tuple[float, str]] = []
        self.figures: dict[str, float] = {}

    def phase(self, name: str) -> None:
        """Begin a phase, which the plot shows."""
        self.phases.append((time.monotonic() - self.began, name))
        print(f"{self.phases[-1][0]:7.1f} s  {name}", flush=True)

    def note(self, name: str, value: float) -> None:
        self.figures[name] = round(value, 3)
        print(f"           {name}: {value:,.3f}", flush=True)

    def sample(self) -> None:
        """Add a sample. While no server runs, its memory is 0."""
        size = allocated_bytes(self.directory)
        resident = 0
        if self.server is not None and self.server.process.poll() is None:
            try:
                resident = self.server.store().resident_bytes()
            except OSError:
                resident = 0
        seconds = time.monotonic() - self.began
        self.samples.append((round(seconds, 1), round(resident / 2**20, 1), round(size / 2**20, 1)))


def live(entries: int, scratch: Path) -> Life:
    """Run all phases. Raises `Unmeasured` if an entry is missing or a bound is not kept."""
    directory = scratch / "data"
    with stored(HEADWATER, directory, *durability("everysec", peer=False)) as server:
        life = Life(directory)
        life.server = server
        server.start()
        with repeated(life.sample, _SAMPLE_SECONDS, name="sampler"):
            _write(life, server, entries)
            store = _start_again(life, server, entries)
            _walk(life, store, entries)
            _trim(life, store, entries)
            server.shut_down()
    _check(life, entries // _LEFT_OF)
    return life


def _write(life: Life, server: StoredServer, entries: int) -> None:
    life.phase("write")
    began = time.monotonic()
    store = server.store()
    fill(store, KEY, entries, FIELDS_5)
    life.note("entries written a second", entries / (time.monotonic() - began))
    store.wait_idle()
    life.note("MiB resident after writing", store.resident_bytes() / 2**20)
    _checkpoint(store)
    life.sample()
    life.note("bytes on disk per entry", life.samples[-1][2] * 2**20 / entries)
    server.shut_down()


def _start_again(life: Life, server: StoredServer, entries: int) -> Store:
    life.phase("start again")
    life.note("seconds to the first PONG", server.start())
    store = server.store()
    store.wait_idle()
    life.note("MiB resident after the start", store.resident_bytes() / 2**20)
    with store.client() as client:
        if client.xlen(KEY) != entries:
            raise Unmeasured(f"{client.xlen(KEY):,} entries after the start instead of {entries:,}")
    return store


def _walk(life: Life, store: Store, entries: int) -> None:
    """Read every entry, in order."""
    life.phase("walk")
    began, found, last = time.monotonic(), 0, 0
    with store.client() as client:
        while last < entries:
            pipe = client.pipeline(transaction=False)
            for ahead in range(_WALK_AT_ONCE):
                first = last + ahead * _WALK_COUNT + 1
                pipe.xrange(KEY, f"{first}-0", f"{first + _WALK_COUNT - 1}-18446744073709551615")
            for reply in pipe.execute():
                ids = [int(entry_id.split(b"-")[0]) for entry_id, _ in reply]
                if ids != list(range(last + 1, min(last + _WALK_COUNT, entries) + 1)):
                    raise Unmeasured(f"not the entries after {last}-0")
                last += len(ids)
                found += len(ids)
                if last >= entries:
                    break
    if found != entries:
        raise Unmeasured(f"{found:,} entries were read instead of {entries:,}")
    life.note("entries walked a second", entries / (time.monotonic() - began))
    life.note("MiB resident after the walk", store.resident_bytes() / 2**20)


def _trim(life: Life, store: Store, entries: int) -> None:
    life.phase("trim to half")
    with store.client() as client:
        _timed(life, client, "ms of XINFO STREAM", "XINFO", "STREAM", KEY)
        slowest = 0.0
        for step in range(1, _TRIM_STEPS + 1):
            left = entries - entries // 2 * step // _TRIM_STEPS
            name = f"ms of XTRIM to {left:,}"
            slowest = max(slowest, _timed(life, client, name, "XTRIM", KEY, "MAXLEN", left))
        _checkpoint(store)
        life.sample()
        life.note("MiB on disk at half", life.samples[-1][2])
        life.phase(f"trim to 1/{_LEFT_OF}")
        left = entries // _LEFT_OF
        _timed(life, client, f"ms of XTRIM to {left:,}", "XTRIM", KEY, "MAXLEN", left)
        store.wait_idle()
        _checkpoint(store)
        life.sample()
        life.note("MiB on disk at the end", life.samples[-1][2])
        life.note("MiB resident at the end", store.resident_bytes() / 2**20)


def _check(life: Life, entries: int) -> None:
    """Recover the directory, and check the state."""
    life.phase("check")
    journal = Journal.open(DiskFiles(life.directory), policy="no")
    try:
        keyspace = recovered_keyspace(journal)
        found = broken_invariants(keyspace)[:3]
        there = sum(stream.length for stream in keyspace.streams.values())
    finally:
        journal.close()
    if found or there != entries:
        raise Unmeasured(f"{there:,} entries instead of {entries:,}; {'; '.join(found)}")
    life.note("entries checked", there)


def _timed(life: Life, client: redis.Redis, name: str, *words: Any) -> float:
    began = time.perf_counter()
    client.execute_command(*words)
    found = (time.perf_counter() - began) * 1000
    life.note(name, found)
    return found


def _checkpoint(store: Store) -> None:
    """Write an image, after one that is being written, and wait for it."""
    rewrite_after(store)
    store.wait_idle()


def plot(life: Life) -> bytes:
    """Return the SVG: memory and disk over time, and the phases."""

    def draw(axes: Any) -> None:
        seconds = [row[0] for row in life.samples]
        axes.plot(seconds, [row[1] for row in life.samples], color=BLUE, label="resident memory")
        axes.plot(seconds, [row[2] for row in life.samples], color=ORANGE, label="files")
        axes.set_xlabel("seconds")
        axes.set_ylabel("MiB")
        top = max(max(row[1:]) for row in life.samples)
        for at, (second, name) in enumerate(life.phases):
            axes.axvline(second, color="#cbd5e0", linewidth=1)
            axes.text(second, top * (1.02 + 0.06 * (at % 2)), f" {name}", fontsize=8)
        axes.legend(loc="center right")

    return render(draw, height=3.8)


def main() -> int:
    """Run, and write the results."""
    made = argparse.ArgumentParser(
        prog="make life",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--entries", type=int, default=100_000_000)
    made.add_argument("--output", type=Path, help="JSON file; without it, the results and the plot")
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            life = live(options.entries, Path(scratch))
        except FAILURES as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    report = results.begin(rounds=1, seconds=0.0)
    report |= {"entries": options.entries, "figures": life.figures, "phases": life.phases}
    report["rows"] = life.samples
    results.write(report, options.output or DIRECTORY / results.name(report))
    if options.output is None:
        PLOT.write_bytes(plot(life))
    slow = {name: value for name, value in life.figures.items() if name.startswith("ms of")}
    late = {name: value for name, value in slow.items() if value > TRIM_MS}
    for name, value in late.items():
        print(f"missed: {name} {value:.1f}, at most {TRIM_MS:.0f}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
