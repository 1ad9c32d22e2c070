"""``headwater demo`` runs all its steps, and leaves nothing behind in whatever way it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import eventually

FLIGHTS = 1_000
HEADWATER = Path(sys.executable).with_name("headwater")
"""The installed program. ``python -m headwater`` also ends with status 130 after Ctrl-C, but not always:
CPython ends by the signal itself if the interrupt arrived within an ``exec`` of source text, as the
definition of a dataclass is one."""

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


@contextmanager
def demo(directory: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo with its files in ``directory``; kill all its processes at the end."""
    process = subprocess.Popen(
        [HEADWATER, "demo", "--flights", str(FLIGHTS), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        for pid in started_in(directory):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def started_in(directory: Path) -> list[int]:
    """Return all running processes of the demo, which have its TMPDIR."""
    mark = f"TMPDIR={directory}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # it has ended, or is a zombie
    return found


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return the output up to the line with ``words``."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if words in line:
            return printed
    raise AssertionError(f"{words!r} was not printed:\n{printed}")


@pytest.mark.slice
@pytest.mark.timeout(400)
def test_every_line_of_the_reconciliation_holds(tmp_path: Path) -> None:
    # When the demo runs on the first thousand flights
    with demo(tmp_path) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        process.wait()
    # Then every line holds, with counts above zero
    assert process.returncode == 0, printed
    rows = [line for line in printed.splitlines() if line.startswith(("ok ", "NO "))]
    assert len(rows) == 15
    assert [row for row in rows if row.startswith("NO ")] == []
    for promise in ("claimed by others", "redelivered", "dead letters: broken JSON"):
        (row,) = [row for row in rows if promise in row]
        assert int(row.split()[-1]) > 0
    # And only the report is left
    (report,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert str(report) in printed
    assert report.read_text().count("<figure>") == 5
    assert started_in(tmp_path) == []


@pytest.mark.parametrize(
    "moment",
    [
        *("ready at", "is paused"),
        *(
            pytest.param(one, marks=pytest.mark.slice)
            for one in ("3 workers", "stopped with SIGTERM", "4. Spark")
        ),
    ],
)
@pytest.mark.timeout(200)
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path) as process:
        # Given a demo in the middle of a step
        read_until(process, moment)
        assert len(started_in(tmp_path)) > 1
        # When Ctrl-C is pressed
        process.send_signal(signal.SIGINT)
        process.wait()
        # Then it ends with the exit status of an interrupted command
        assert process.returncode == 130
        # And its child processes have ended, after a moment that the kernel needs
        eventually(lambda: started_in(tmp_path) == [])
        assert [path.name for path in tmp_path.glob("headwater-demo-*")] == []


@pytest.mark.slice
@pytest.mark.timeout(400)
def test_keep_leaves_server_and_tables_and_says_how_to_end_them(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as process:
        # When the demo has ended
        printed = read_until(process, "kill ")
        assert process.wait() == 0
        # Then only the server runs, and the printed commands use it and end it
        found = re.search(r"kill (\d+); rm -r (\S+)", printed)
        assert found is not None
        assert started_in(tmp_path) == [int(found[1])]
        assert (Path(found[2]) / "tables" / "hourly").is_dir()
        dead = re.search(r"headwater (dead list .*)", printed)
        assert dead is not None
        shown = subprocess.run(
            [sys.executable, "-m", "headwater", *dead[1].split()],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "unknown carrier" in shown.stdout
        os.kill(int(found[1]), signal.SIGTERM)
