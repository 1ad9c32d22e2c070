"""``make bench-docs``: writes docs/reference/performance.md from the newest file of results.

A test compares the page with what this would write, so that no figure there is typed by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.machine import ROOT
from benchmarks.results import Report
from benchmarks.rows import OURS
from benchmarks.show import figure, percent
from benchmarks.stores import PEERS, REDIS, VALKEY
from benchmarks.worker import page as worker

PAGE: Final = ROOT / "docs" / "reference" / "performance.md"

HEAD: Final = """\
# Performance

Written by `make bench-docs` from [{file}](../../benchmarks/results/{file}), which `make bench` has
measured. Absolute figures are those of one machine; ratios travel better. Measure on yours.

## How it is measured

- **Side by side.** Headwater, Redis {redis}, Valkey {valkey} and Redis {old} run at the same time and
  are asked in turn, in {rounds} rounds of {seconds} s, each begun by another one. A ratio is the
  median of the rounds' ratios, so a machine that becomes slower half way changes none; *spread* is the
  distance between our best and worst round, as a part of the median.
- **What is pinned.** Every server, with all its threads, to core {server}; the client to core {client}.
- **The client** is a C program of ours (`benchmarks/load/`): one thread, one epoll, requests that stand
  ready. It reads every answer to its end and ends the run at an error, so a refusal is never counted as
  work; answers to reads that cannot change are read in full once and compared by size, beginning and
  end from then on. *Client* is the part of the time in which its core was busy: near 100 % the client
  is what was measured, and the ratio is less than the truth.
- **Closed loop**: a connection sends its next batch when the answers to the last one are there, so p50
  and p99 are times to a whole batch of *P* answers under full load. The latency rows are an open loop:
  entries are due ten thousand a second whatever the server does, and wait on its account.
- **CPU** is the processor time of the server's process an operation, system calls included, all threads,
  as the kernel's clock of that process counts it within the measured window. It says what a server
  could do when the client is what is slow, and is steadier on a busy machine.
- **A ratio** is ours over theirs; of CPU theirs over ours. Above 1 means more work in the same time.
  Of bytes, milliseconds and microseconds less is better, and so is a ratio below 1.
- Entries differ: a digit by chance for each `#` in `benchmarks/workloads.py`, so that neither
  compression nor a cache finds the same bytes again and again.

*Required* and *goal* are what this project holds itself to; *required* of Valkey in brackets. The last
column says what was reached: **goal**, **required**, **missed**, or that the row is reported only.

{machine}, {system}; {memory} GiB, {cores} cores; {libc}, {python}. Headwater {version}, {build},
commit `{commit}`{changed}, {date}; load before the run: {load}.
"""

BUSY_LOAD: Final = 0.5
BUSY: Final = """\
**The machine did other work at the same time** (see the load, and the spreads): no absolute figure here is
what it could be, and ratios are rough. Measure again before any of it is quoted.
"""

TITLES: Final = {
    "throughput": "Nothing kept on disk",
    "everysec": "Append-only file on every side, flushed every second",
    "scans": "One call on a million pending entries",
    "latency": "From an append to the consumer that was blocked",
    "memory": "Memory",
    "restart": "Start",
    "growth": "Growth",
    "embedded": "In the process that wants it",
    "io-threads": "Redis with threads of input and output",
    "redis-benchmark": "By redis-benchmark",
}

TEXTS: Final = {
    "throughput": "`c` connections, `P` requests a batch; rows with *of 100* count entries, not calls. "
    "The row *by CPU* is judged by processor time, for there a client is slower than the servers. The "
    "rows of *fsync always* keep a file on every side; *plain Python* runs without compiled modules.",
    "scans": "Processor time of a call among calls that come sixteen at a time; p50 and p99 are the round "
    "trip of a call alone.",
    "latency": "Ten consumers blocked in XREADGROUP, ten thousand entries a second, from the moment an "
    "entry was due to be sent until its consumer has it.",
    "memory": "What the kernel counts as resident (RSS) in a server that was started for the row; bytes "
    "an entry are the difference that a million make. *Hot* without compression, *sealed* with next to "
    "nothing left as it was written.",
    "restart": "From starting the process to the first PONG, after an end in good order, an append-only "
    "file on every side; *RDB* is a snapshot. Reported; required once checkpoints are there.",
    "growth": "Processor time of a call at ten million entries, or a million pending, over that at ten "
    "thousand, in the same server. Reading anywhere in ten million meets what is compressed.",
    "embedded": "One process, no network: bytes of a request to bytes of the reply (`Node.exchange`, no "
    "client library) beside burner-redis's call, and redis-py with the embedded store beside redis-py "
    "with Redis at a unix socket.",
    "io-threads": "The servers have {threads}. The ratio is to the best of the peers.",
    "redis-benchmark": "The program of Redis 7.0.15, which is a heavier client than ours and is itself "
    "what is measured at one request a batch. To be placed beside figures published elsewhere.",
}

FEW_CORES: Final = (
    "both of two cores, and the client one of these: too few for threads to gain much"
)

JsonRow = dict[str, Any]
Column = tuple[str, Callable[[JsonRow], str]]


def _of(store: str, name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return figure(row["stores"].get(store, {}).get(name))

    return cell


def _ratio(peer: str, kind: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return figure(row["ratios"].get(peer, {}).get(kind))

    return cell


def _part(name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return percent(row["stores"].get(OURS, {}).get(name))

    return cell


def _times(row: JsonRow) -> str:
    ours = row["stores"].get(OURS, {})
    if "p50_us" not in ours:
        return ""
    return f"{figure(ours['p50_us'])} / {figure(ours['p99_us'])}"


def _bound(name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        target = row.get("target")
        if target is None:
            return ""
        other = target["required_of"].get(VALKEY) if name == "required" else None
        return f"{target[name]:g}" + (f" ({other:g})" if other else "")

    return cell


def columns(rows: Sequence[JsonRow]) -> list[Column]:
    """What the section's table has; what no row has a cell for is left out."""
    others = [name for row in rows for name in row["stores"] if name != OURS]
    names = list(dict.fromkeys(others))
    found: list[Column] = [
        ("", lambda row: f"{row['name']} ({row['unit']})"),
        *((_title(name), _of(name, "median")) for name in names),
        ("Headwater", _of(OURS, "median")),
        ("spread", _part("spread")),
        ("p50 / p99 µs", _times),
        ("CPU µs", _of(OURS, "cpu_us")),
        ("client", _part("client_busy")),
    ]
    for name in names:
        found.append((f"to {_title(name)}", _ratio(name, "ratio")))
        if name == REDIS:
            found.append(("by CPU", _ratio(name, "cpu")))
    found += [
        ("required", _bound("required")),
        ("goal", _bound("goal")),
        ("", lambda row: str(row["verdict"])),
    ]
    return [(title, cell) for title, cell in found if not title or any(cell(row) for row in rows)]


def _title(store: str) -> str:
    """``Redis 8.2`` of ``redis-8.2``."""
    return (
        store.replace("-", " ", 1).capitalize() if store.startswith(("redis", "valkey")) else store
    )


def table(rows: Sequence[JsonRow]) -> list[str]:
    """Lines of a table in Markdown, and a line for each row that has something to add."""
    wanted = columns(rows)
    lines = [_line(title for title, _ in wanted), _line("---" for _ in wanted)]
    lines += [_line(cell(row) for _, cell in wanted) for row in rows]
    for row in rows:
        for text in (row.get("missing"), row.get("note")):
            if text:
                lines += ["", f"{row['name']}: {text}."]
    return lines


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(report: Report, file: str) -> str:
    """The page, as it should stand in the file."""
    machine, peers, pinned = report["machine"], report["peers"], report["pinned"]
    server, client = pinned["server"], pinned["client"]
    head = HEAD.format(
        file=file, rounds=rounds_of(report), seconds=f"{report['seconds']:g}",
        redis=peers.get(REDIS, "8.2 (not run)"), valkey=peers.get(VALKEY, "9.1 (not run)"),
        old=peers.get(PEERS[2], "7.0 (not run)"), server=server, client=client,
        machine=machine["cpu"], system=machine["system"], memory=machine["memory_gib"],
        cores=machine["cores"], libc=machine["libc"], python=machine["python"],
        version=report["version"], build=report["build"], commit=report["commit"][:12],
        changed=" with changes" if report["commit"].endswith("+") else "",
        date=report["date"][:10], load=report["load_before"],
    )  # fmt: skip
    threads = FEW_CORES if machine["cores"] <= 2 else "every core but the client's"
    parts = [head, *([BUSY] if report["load_before"] > BUSY_LOAD else [])]
    for section, title in TITLES.items():
        rows = [row for row in report["rows"] if row["section"] == section]
        if rows:
            text = TEXTS.get(section, "").format(threads=threads)
            lines = [f"## {title}\n", *([f"{text}\n"] if text else []), *table(rows), ""]
            parts.append("\n".join(lines))
    return "\n".join(parts)


def rounds_of(report: Report) -> str:
    """``5``, or ``1 to 5`` where not every row has as many."""
    counts = {len(one["rounds"]) for row in report["rows"] for one in row["stores"].values()}
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most}" if least == most else f"{least} to {most}"


def written(path: Path | None = None) -> str:
    """The page of the newest results, or of those at ``path``."""
    newest = path or results.newest()
    assert newest is not None, "there are no results yet: make bench"
    parts = [page(results.read(newest), newest.name), worker.section()]
    return "\n".join(part for part in parts if part)


def main() -> int:
    """Write the page."""
    PAGE.write_text(written(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
