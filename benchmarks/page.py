"""``make bench-docs``: writes docs/reference/performance.md from the newest results.

A test compares the page with what this module writes, so that the page is never edited by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.machine import ROOT
from benchmarks.results import Report
from benchmarks.rows import OURS, REDIS
from benchmarks.show import number, percent
from benchmarks.storage import page as stored
from benchmarks.stores import PEERS, VALKEY
from benchmarks.worker import page as worker

PAGE: Final = ROOT / "docs" / "reference" / "performance.md"

HEAD: Final = """\
# Performance

Written by `make bench-docs` from [{file}](../../benchmarks/results/{file}), which `make bench`
wrote. Absolute results are those of one machine; ratios depend less on the machine. Run it on yours.

## How it is measured

- **Side by side.** Headwater, Redis {redis}, Valkey {valkey} and Redis {old} run at the same time and
  are measured in turn, in {rounds} rounds of {seconds} s; each round begins with another server. A ratio
  is the median of the rounds' ratios, so a machine that becomes slower during the run does not change
  it. *Spread* is the distance between Headwater's best and worst round, as a share of the median.
- **Pinning.** Every server, with all its threads, runs on core {server}, the client on core {client}.
- **The client** is a C program (`benchmarks/load/`): one thread, one epoll, prepared requests. It reads
  every reply to its end and stops at an error, so an error never counts as work. Replies that cannot
  change are read completely once, and afterwards compared by size, beginning and end. *Client* is the
  share of the time in which its core was busy: near 100 % the client is the bottleneck, and the true
  ratio is higher.
- **Closed loop**: a connection sends its next batch when it has the replies to the last one, so p50 and
  p99 are the times until a whole batch of *P* replies has arrived, under full load. The latency rows are
  an open loop: ten thousand entries per second are due whatever the server does, and a delay counts from
  the due time.
- **CPU** is the processor time of the server's process per operation, system calls and all threads
  included, as the kernel counts it within the measured window. It shows what a server could do if the
  client is the bottleneck, and varies less on a busy machine.
- **A ratio** is Headwater's value divided by the peer's; for CPU the peer's divided by Headwater's. Above
  1 means more work in the same time. For bytes, milliseconds and microseconds, less is better, and so is
  a ratio below 1.
- Entries differ: each `#` in `benchmarks/workloads.py` becomes a random digit, so that compression and
  caches do not gain from equal entries.

*Required* and *goal* are this project's own targets; the target against Valkey is in brackets. The last
column says what was reached: **goal**, **required**, **missed**, or that the row is reported only.

{machine}, {system}; {memory} GiB, {cores} cores; {libc}, {python}. Headwater {version}, {build},
commit `{commit}`{changed}, {date}; load before the run: {load}.
"""

BUSY_LOAD: Final = 0.5
"""The load average before the run above which the page warns that the machine was busy."""

BUSY: Final = """\
**The machine did other work at the same time** (see the load and the spreads): an idle machine gives better
absolute results, and ratios are rough. Measure again before you quote them.
"""

TITLES: Final = {
    "throughput": "Without a journal",
    "everysec": "With an append-only file on all servers, flushed every second",
    "scans": "One call on large values",
    "latency": "From an append to a blocked consumer",
    "memory": "Memory",
    "restart": "Start",
    "command-line": "Command line",
    "growth": "Growth",
    "embedded": "Embedded",
    "io-threads": "Redis with I/O threads",
    "redis-benchmark": "With redis-benchmark",
}

TEXTS: Final = {
    "throughput": "`c` connections, `P` requests per batch; rows with *of 100* count entries, not calls. "
    "The row *by CPU* is compared by processor time, because there the client is slower than the servers. "
    "In the rows with *fsync always* all servers write a file; *plain Python* runs without compiled modules.",
    "scans": "Processor time of a call when sixteen are sent at a time; p50 and p99 are the round trip of "
    "a single call.",
    "latency": "Ten consumers blocked in XREADGROUP, ten thousand entries per second, from the time an "
    "entry was due to be sent until its consumer has it.",
    "memory": "Resident memory (RSS) of a server that was started for the row. Bytes per entry are the "
    "difference that a million entries make. *Hot* is without compression, *sealed* with nearly all blocks "
    "compressed.",
    "restart": "From starting the process to the first PONG, after a clean shutdown, with an append-only "
    "file on all servers; *RDB* is a snapshot. Reported without a verdict.",
    "command-line": "Processor time of a command on a local server, divided by that of `python -c pass` in the "
    "same round.",
    "growth": "Processor time of a call at ten million entries, or a million pending, divided by that at "
    "ten thousand, in the same server. Reading anywhere in ten million entries reads compressed blocks.",
    "embedded": "One process, no network. From request bytes to reply bytes (`Node.exchange`, without a "
    "client library), compared with a call of burner-redis; and redis-py with the embedded store, compared "
    "with redis-py and Redis on a unix socket.",
    "io-threads": "The servers have {threads}. The ratio is to the best of the peers.",
    "redis-benchmark": "The program of Redis 7.0.15. It needs more processor time than this project's "
    "client, and is the bottleneck at one request per batch. Measured for comparison with results published "
    "elsewhere.",
}

FEW_CORES: Final = (
    "both of two cores, one of which the client uses too: too few for threads to gain much"
)

JsonRow = dict[str, Any]
Column = tuple[str, Callable[[JsonRow], str]]


def _of(store: str, name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return number(row["stores"].get(store, {}).get(name))

    return cell


def _ratio(peer: str, kind: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return number(row["ratios"].get(peer, {}).get(kind))

    return cell


def _part(name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        return percent(row["stores"].get(OURS, {}).get(name))

    return cell


def _times(row: JsonRow) -> str:
    ours = row["stores"].get(OURS, {})
    if "p50_us" not in ours:
        return ""
    return f"{number(ours['p50_us'])} / {number(ours['p99_us'])}"


def _bound(name: str) -> Callable[[JsonRow], str]:
    def cell(row: JsonRow) -> str:
        target = row.get("target")
        if target is None:
            return ""
        other = target["required_of"].get(VALKEY) if name == "required" else None
        return f"{target[name]:g}" + (f" ({other:g})" if other else "")

    return cell


def columns(rows: Sequence[JsonRow]) -> list[Column]:
    """Return the columns of a section's table, without those in which all cells are empty."""
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
    """Return the title of a store: ``Redis 8.2`` for ``redis-8.2``."""
    return (
        store.replace("-", " ", 1).capitalize() if store.startswith(("redis", "valkey")) else store
    )


def table(rows: Sequence[JsonRow]) -> list[str]:
    """Return the lines of a Markdown table, followed by a line for each note of a row."""
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
    """Return the text of the page, without the sections of storage, replication and the worker."""
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
    """Return the number of rounds: ``5``, or ``1 to 5`` if rows differ."""
    counts = {len(one["rounds"]) for row in report["rows"] for one in row["stores"].values()}
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most}" if least == most else f"{least} to {most}"


def written(path: Path | None = None) -> str:
    """Return the page of the newest results, or of those at ``path``."""
    newest = path or results.newest()
    assert newest is not None, "there are no results: run make bench"
    parts = [
        page(results.read(newest), newest.name),
        stored.storage(),
        stored.replication(),
        worker.section(),
    ]
    return "\n".join(part for part in parts if part)


def main() -> int:
    """Write the page."""
    PAGE.write_text(written(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
