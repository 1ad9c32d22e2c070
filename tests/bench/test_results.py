"""Files of results, and the page that is written from the newest one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import page, results
from benchmarks.results import OtherResults, Report
from benchmarks.rows import Row, Target

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def report(*, commit: str = COMMIT, date: str = "2026-11-21T10:00:00+00:00") -> Report:
    """Return a report as `results.begin` makes it, of an invented machine."""
    return {
        "format": results.FORMAT,
        "date": date,
        "commit": commit,
        "version": "0.1.0",
        "build": "compiled (30 modules)",
        "machine": {
            "cpu": "A processor", "cores": 2, "memory_gib": 8.0, "system": "Linux 6 x86_64",
            "libc": "glibc 2.36", "python": "CPython 3.11.7",
        },
        "load_before": 0.1,
        "pinned": {"server": 0, "client": 1},
        "peers": {"redis-8.2": "8.2.3"},
        "rounds": 5,
        "seconds": 2.0,
        "rows": [],
    }  # fmt: skip


def a_row(name: str, rate: float, *, target: Target | None = None) -> Row:
    row = Row("throughput", name, "/s", target=target)
    row.of("headwater").add(rate, cpu_us=1.5, p50_us=200.0, p99_us=400.0, client_busy=0.5)
    row.of("redis-8.2").add(1000.0, cpu_us=3.0)
    return row


def test_a_written_report_can_be_read(tmp_path: Path) -> None:
    written = report()
    results.add(written, [a_row("XADD", 2000.0), a_row("XRANGE", 10.0)])
    path = tmp_path / "results" / results.name(written)
    results.write(written, path)
    assert path.name == "2026-11-21-0123456.json"
    assert results.read(path) == written


def test_each_row_is_one_line(tmp_path: Path) -> None:
    written = report()
    results.add(written, [a_row("XADD", 2000.0), a_row("XRANGE", 10.0)])
    results.write(written, tmp_path / "a.json")
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert [json.loads(line.rstrip(","))["name"] for line in lines if line.startswith('{"')] == [
        "XADD",
        "XRANGE",
    ]


def test_a_file_without_rows_can_be_read(tmp_path: Path) -> None:
    results.write(report(), tmp_path / "a.json")
    assert results.read(tmp_path / "a.json") == report()


def test_a_row_that_is_measured_again_replaces_the_old_one() -> None:
    kept = report()
    results.add(kept, [a_row("XADD", 1.0), a_row("XRANGE", 1.0)])
    results.add(kept, [a_row("XADD", 2.0)])
    assert [(row["name"], row["stores"]["headwater"]["median"]) for row in kept["rows"]] == [
        ("XADD", 2.0),
        ("XRANGE", 1.0),
    ]


def test_only_the_same_commit_can_continue_a_file(tmp_path: Path) -> None:
    # Given a file of results
    path = tmp_path / "a.json"
    assert results.continued(path, report())["rows"] == []
    kept = report()
    results.add(kept, [a_row("XADD", 1.0)])
    results.write(kept, path)
    # Then the same commit adds to it
    assert len(results.continued(path, report(date="2026-11-22T10:00:00+00:00"))["rows"]) == 1
    # And another one gets an error
    with pytest.raises(OtherResults, match="commit"):
        results.continued(path, report(commit="f" * 40))


def test_the_newest_file_has_the_latest_date(tmp_path: Path) -> None:
    assert results.newest(tmp_path) is None
    early, late = report(commit="f" * 40), report(date="2026-11-21T10:00:01+00:00")
    for one in (late, early):
        results.write(one, tmp_path / results.name(one))
    assert results.newest(tmp_path) == tmp_path / results.name(late)


# --- the page --------------------------------------------------------------------------------------


def test_the_page_shows_the_rows_of_the_file() -> None:
    kept = report()
    target = Target(1.3, 2.0, required_of={"valkey-9.1": 1.5})
    results.add(kept, [a_row("XADD", 1500.0, target=target)])
    text = page.page(kept, "2026-11-21-0123456.json")
    assert "../../benchmarks/results/2026-11-21-0123456.json" in text
    head, _, line = text.partition("## Without a journal")[2].strip().splitlines()[-3:]
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "", "Redis 8.2", "Headwater", "spread", "p50 / p99 µs", "CPU µs", "client", "to Redis 8.2",
        "by CPU", "required", "goal", "",
    ]  # fmt: skip
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "XADD (/s)", "1,000", "1,500", "0%", "200 / 400", "1.5", "50%", "1.5", "2", "1.3 (1.5)",
        "2", "required",
    ]  # fmt: skip


def test_the_page_says_if_the_sources_differed_from_the_commit() -> None:
    assert "`0123456789ab`, 2026-11-21" in page.page(report(), "a.json")
    assert "`0123456789ab` with changes, 2026" in page.page(report(commit=COMMIT + "+"), "a.json")


def test_the_page_warns_if_the_machine_was_busy() -> None:
    assert page.BUSY not in page.page(report(), "a.json")
    assert page.BUSY in page.page({**report(), "load_before": 3.0}, "a.json")


def test_the_page_says_how_many_rounds_there_were() -> None:
    kept = report()
    results.add(kept, [a_row("XADD", 1.0)])
    assert page.rounds_of(kept) == "1"
    several = a_row("XRANGE", 1.0)
    for name in ("headwater", "redis-8.2"):
        several.of(name).add(1.0, cpu_us=1.0)
    results.add(kept, [several])
    assert page.rounds_of(kept) == "1 to 2"


def test_the_page_says_why_a_row_is_missing() -> None:
    kept = report()
    results.add(kept, [Row("memory", "sealed", "B", missing="the server refuses")])
    assert "sealed: the server refuses." in page.page(kept, "a.json")


def test_the_documentation_shows_the_newest_results() -> None:
    if results.newest() is None:
        pytest.skip("there are no results yet")
    assert page.PAGE.read_text(encoding="utf-8") == page.written(), "run `make bench-docs`"


@pytest.mark.parametrize(
    "path", sorted(results.DIRECTORY.glob("*.json")), ids=lambda path: path.name
)
def test_results_in_the_repository_contain_no_path_and_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r'"[^"]*/(?:home|tmp|root|usr|var)/', text) is None
    assert len(text) < 100_000
    assert results.name(results.read(path)) == path.name
