"""The worker's section of docs/reference/performance.md, from the newest file of `make bench-worker`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.rows import OURS, paired
from benchmarks.show import number, percent
from benchmarks.worker.delayed import SEND
from benchmarks.worker.subjects import RAW

DIRECTORY: Final = results.DIRECTORY / "worker"

HEAD: Final = """\
## Worker

`{file}`, commit `{commit}`, {date}: 50,000 JSON messages of 75 B, a handler that only counts, one process, the
server on the other core; median of {rounds} rounds, each compared with a *raw loop* of the same round (redis-py,
COUNT 500, one XACK for all entries read; for `into=` a pipelined MULTI of XADD and XACK). CPU is the processor
time of the worker process per message.

| | messages/s | spread | CPU µs | of the raw loop | required | goal | |
|---|---|---|---|---|---|---|---|
"""


def section(directory: Path = DIRECTORY) -> str:
    """Return the section, in Markdown; empty if ``directory`` has no results."""
    newest = results.newest(directory) if directory.exists() else None
    if newest is None:
        return ""
    report = results.read(newest)
    head = HEAD.format(
        file=newest.name,
        commit=report["commit"][:12],
        date=report["date"][:10],
        rounds=report["rounds"],
    )
    return head + "".join(_lines(report["rows"]))


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each row: of Headwater, or of the peer that the row compares it with."""
    for row in rows:
        stores = row["stores"]
        theirs = next((name for name in stores if name not in (OURS, RAW, SEND)), None)
        if theirs is None:
            yield _line(row, row["name"], OURS)
        else:
            # The verdict is about Headwater, not about the peer that this line shows.
            yield _line({**row, "verdict": ""}, theirs, theirs)


def _line(row: dict[str, Any], title: str, name: str) -> str:
    """Return the line of the table for the store or program ``name``."""
    one, raw = row["stores"].get(name), row["stores"].get(RAW) or row["stores"].get(SEND)
    if one is None:
        return f"| {title} | not available | | | | | | |\n"
    ratio = number(paired(one["rounds"], raw["rounds"])) if raw else ""
    target = row.get("target", {})
    unit = "" if row["unit"] == "/s" else f" {row['unit']}"
    cells = (
        title,
        number(one["median"]) + unit,
        percent(one["spread"]),
        number(one.get("cpu_us")),
        ratio,
        number(target.get("required")),
        number(target.get("goal")),
        row["verdict"],
    )
    return f"| {' | '.join(cells)} |\n"
