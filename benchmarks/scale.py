"""``make bench-scale``: how long one command blocks the server's loop when the store is large.

Uses an embedded store without a journal, and measures the turn itself, during which no other client is
served: on a stream of a million entries, all pending, and on 100,000 keys, with COUNT at most 1000.
Large values are freed in later turns, which are measured too. Exits with 1 if a compiled store takes more
than 50 ms for any of them.

Then, on real servers and compared with Redis in the same run: how long a PING waits while 200,000 streams
are created (`benchmarks.pauses`) and while large values are dumped and restored
(`benchmarks.stalls_dump`), and the cost of a script's call (`benchmarks.scripts`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import pauses, scripts, stalls_dump
from benchmarks.machine import build_kind
from benchmarks.rows import REDIS
from headwater.testing.node import LocalClient, LocalStore, Word, request

RESULTS = Path("artifacts", "scale.json")
BOUND_MS = 50.0
KEYS = 100_000
BATCH = 1000

Line = tuple[Word, ...]


def pending_lines(entries: int) -> list[Line]:
    """Return commands on a stream whose entries are all pending, and on a copy of it."""
    half, quarter = entries // 2, entries // 4
    return [
        ("XAUTOCLAIM", "s", "g", "z", 0, 0, "COUNT", 1000),
        ("XAUTOCLAIM", "s", "g", "z", 10**8, 0, "COUNT", 1000),
        ("XREADGROUP", "GROUP", "g", "z", "COUNT", 1000, "CLAIM", 0, "STREAMS", "s", ">"),
        ("XREADGROUP", "GROUP", "g", "c5", "COUNT", 1000, "STREAMS", "s", 0),
        ("XREADGROUP", "GROUP", "g", "nobody", "COUNT", 1000, "STREAMS", "s", 0),
        ("XPENDING", "s", "g", "-", "+", 1000, "z"),
        ("XPENDING", "s", "g", "IDLE", 10**8, "-", "+", 1000),
        ("XRANGE", "s", "-", "+", "COUNT", 1000),
        ("XINFO", "STREAM", "s", "FULL"),
        ("XLAG", "s"),
        ("XSPLIT", "s", "-", "+", 8),
        ("COPY", "s", "copy"),
        ("RENAME", "copy", "other"),
        ("DEL", "other"),
        ("XTRIM", "s", "MAXLEN", half),
        ("XTRIM", "s", "MAXLEN", "~", quarter, "LIMIT", 0),
        ("XAUTOCLAIM", "s", "g", "z", 10**8, 0, "COUNT", 1000),
        ("XGROUP", "DELCONSUMER", "s", "g", "c5"),
        ("XGROUP", "DESTROY", "s", "g"),
        ("DEL", "s"),
    ]


KEY_LINES: list[Line] = [
    ("KEYS", "*"),
    ("KEYS", "key:5*:7?"),
    ("KEYS", "*[0-3]*:9*"),
    ("SCAN", 0, "COUNT", 1000),
    ("SCAN", 0, "COUNT", 1000, "MATCH", "*:99*"),
    ("RANDOMKEY",),
    ("FLUSHALL",),
]


class Scale:
    """A store, and the longest turn of each measured command."""

    def __init__(self) -> None:
        self.store = LocalStore(journaled=False)
        self.client: LocalClient = self.store.client()
        self.rows: list[dict[str, object]] = []

    def fill(self, lines: Iterable[Line]) -> None:
        """Send commands in batches, without measuring them."""
        batch: list[bytes] = []
        for line in lines:
            batch.append(request(line))
            if len(batch) == BATCH:
                self._send(b"".join(batch))
                batch.clear()
        self._send(b"".join(batch))

    def measure(self, line: Line) -> None:
        """Measure one command, and the turns that free what it deleted."""
        longest = self._send(request(line))
        keyspace = self.store.node.keyspace
        while keyspace.garbage:
            began = time.perf_counter()
            self.store.node.tick()
            longest = max(longest, time.perf_counter() - began)
        text = " ".join(str(word) for word in line)
        self.rows.append({"command": text, "ms": round(longest * 1000, 2)})
        print(f"{longest * 1000:9.2f} ms  {text}", flush=True)

    def _send(self, data: bytes) -> float:
        session = self.client.session
        session.feed(data)
        began = time.perf_counter()
        self.store.node.turn([session])
        taken = time.perf_counter() - began
        session.output.take()
        return taken


def fill_stream(scale: Scale, entries: int) -> None:
    """Add ``entries`` entries to a stream ``s``."""
    scale.fill(("XADD", "s", f"{number}-0", "field", number) for number in range(1, entries + 1))


def measure(entries: int) -> list[dict[str, object]]:
    """Measure all commands; return the rows of the table."""
    scale = Scale()
    fill_stream(scale, entries)
    scale.fill([("XGROUP", "CREATE", "s", "g", 0)])
    read = ("COUNT", 1000, "STREAMS", "s", ">")
    scale.fill(
        ("XREADGROUP", "GROUP", "g", f"c{at % 10}", *read) for at in range(entries // 1000 + 1)
    )
    for line in pending_lines(entries):
        scale.measure(line)
    fill_stream(scale, entries)
    scale.measure(("XTRIM", "s", "MAXLEN", 0))
    scale.fill(("SET", f"key:{number % 100}:{number}", "x") for number in range(KEYS))
    for line in KEY_LINES:
        scale.measure(line)
    return scale.rows


def main() -> int:
    """Measure, print, write. Returns 1 if a compiled store exceeds a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    wanted = parser.parse_args()
    kind = build_kind()
    print(f"Longest turn of each command; headwater {kind}, {wanted.entries:,} entries")
    rows = measure(wanted.entries)
    pings = pauses.judged()
    moved = stalls_dump.gate()
    print(f"Processor time of one EVALSHA; at most {scripts.REQUIRED:g} times that of {REDIS}")
    costs = scripts.costs()
    RESULTS.parent.mkdir(exist_ok=True)
    report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "build": kind,
        "entries": wanted.entries,
        "bound_ms": BOUND_MS,
        "rows": rows,
        "longest_ping": {name: one._asdict() for name, one in pings.items()},
        "dump": [asdict(row) for row in moved],
        "scripts": [cost._asdict() for cost in costs],
    }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    over = [row for row in rows if float(str(row["ms"])) > BOUND_MS]
    print(f"{len(over)} of {len(rows)} over {BOUND_MS:.0f} ms; written to {RESULTS}")
    dear = [cost.name for cost in costs if not cost.passes]
    failed = over or dear or pauses.over(pings) or stalls_dump.failing(moved)
    return 1 if failed and not kind.startswith("plain") else 0


if __name__ == "__main__":
    sys.exit(main())
