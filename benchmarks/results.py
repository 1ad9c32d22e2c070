"""Files of results: ``results/DATE-COMMIT.json``, one line per row, so that two files can be compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import headwater
from benchmarks import machine
from benchmarks.rows import Row
from benchmarks.stores import cores, versions

DIRECTORY: Final = Path(__file__).parent / "results"
PART: Final = Path("artifacts", "bench.json")
"""The file for a part of the table."""

FORMAT: Final = 1

Report = dict[str, Any]


class OtherResults(Exception):
    """The file has results of another commit or build, which must not be mixed."""


def begin(*, rounds: int, seconds: float) -> Report:
    """Return a report without rows: what is measured, where, and the machine's load before."""
    server, client = cores()
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "version": headwater.__version__,
        "build": machine.build_kind(),
        "machine": machine.describe_machine(),
        "load_before": round(os.getloadavg()[0], 2),
        "pinned": {"server": server, "client": client},
        "peers": versions(),
        "rounds": rounds,
        "seconds": seconds,
        "rows": [],
    }


def name(report: Report) -> str:
    """Return the report's file name, such as ``2026-11-21-dc1a47a.json``."""
    return f"{report['date'][:10]}-{report['commit'][:7] or 'nogit'}.json"


def add(report: Report, rows: Iterable[Row]) -> None:
    """Add rows to the report; each replaces a row of the same section and name."""
    for row in rows:
        new = row.as_json()
        for at, old in enumerate(report["rows"]):
            if (old["section"], old["name"]) == (new["section"], new["name"]):
                report["rows"][at] = new
                break
        else:
            report["rows"].append(new)


def write(report: Report, path: Path) -> None:
    """Write the report: its head indented, then one line per row."""
    head = {key: value for key, value in report.items() if key != "rows"}
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in report["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{text},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def read(path: Path) -> Report:
    """Read a report that `write` has written."""
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    assert report["format"] == FORMAT, f"{path} has format {report['format']}, not {FORMAT}"
    return report


def continued(path: Path, fresh: Report) -> Report:
    """Return the report at ``path`` with its rows, or ``fresh`` if there is no file.

    Raises `OtherResults` if the file is about another commit, build or machine, or about rounds of
    another length.
    """
    if not path.exists():
        return fresh
    found = read(path)
    for key in ("commit", "build", "machine", "seconds"):
        if found[key] != fresh[key]:
            raise OtherResults(
                f"{path} is about {key} {found[key]}, this is {fresh[key]}: choose another --output"
            )
    return found


def newest(directory: Path = DIRECTORY) -> Path | None:
    """Return the file of the last run, None if there is none."""
    found = sorted(directory.glob("*.json"), key=lambda path: read(path)["date"])
    return found[-1] if found else None
