"""The sections about storage and replication of docs/reference/performance.md, from the newest files of `make bench-storage`
and `make bench-replication`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.rows import OURS, REDIS
from benchmarks.show import number, percent

VALKEY: Final = "valkey-9.1"
DIRECTORY: Final = results.DIRECTORY / "storage"
REPLICATION: Final = results.DIRECTORY / "replication"

HEAD: Final = """\
## {title}

`{file}`, commit `{commit}`, {date}: stores that write files, {layout};
median of {rounds} rounds. *Value* is what the targets apply to: Headwater's own measurement, or its ratio to
Redis 8.2 of the same round. A row in *x* is a ratio of two measurements of one store.

| | Redis 8.2 | Valkey 9.1 | Headwater | spread | value | required | goal | |
|---|---|---|---|---|---|---|---|---|
"""


def storage() -> str:
    """Return the section about storage, in Markdown; empty without results."""
    return section(DIRECTORY, "Storage", "the server on one core and the client on the other")


def replication() -> str:
    """Return the section about replication, in Markdown; empty without results."""
    layout = "the primary on one core, its replica and the client on the other"
    return section(REPLICATION, "Replication", layout)


def section(directory: Path, title: str, layout: str) -> str:
    """Return the section of the newest results in ``directory``, in Markdown; empty if there are none."""
    newest = results.newest(directory) if directory.exists() else None
    if newest is None:
        return ""
    report = results.read(newest)
    head = HEAD.format(
        title=title,
        layout=layout,
        file=newest.name,
        commit=report["commit"][:12],
        date=report["date"][:10],
        rounds=report["rounds"],
    )
    lines = "".join(_line(row) for row in report["rows"])
    remarks = "".join(
        f"\n{row['name']}: {text}.\n"
        for row in report["rows"]
        for text in (row.get("missing"), row.get("note"))
        if text
    )
    return head + lines + remarks


def _line(row: dict[str, Any]) -> str:
    stores, target = row["stores"], row.get("target", {})
    redis, valkey, ours = (stores.get(name, {}) for name in (REDIS, VALKEY, OURS))
    cells = (
        f"{row['name']} ({row['unit']})",
        number(redis.get("median")),
        number(valkey.get("median")),
        number(ours.get("median")),
        percent(ours.get("spread")),
        number(target.get("value")),
        number(target.get("required")),
        number(target.get("goal")),
        row["verdict"],
    )
    return f"| {' | '.join(cells)} |\n"
