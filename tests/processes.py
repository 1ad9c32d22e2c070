"""What the kernel says of the processes that a test started, from ``/proc``."""

from __future__ import annotations

from pathlib import Path


def stat(pid: int | str) -> list[str]:
    """State, parent, group and session of a process or ``PID/task/TID``; nothing when it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name, in brackets, may hold anything.
    return text.rpartition(")")[2].split()[:4]


def runs(pid: int) -> bool:
    """Whether the process lives; one that nobody waits for stays as a zombie."""
    return stat(pid)[:1] not in ([], ["Z"])


def children(pid: int) -> list[int]:
    """The processes that ``pid`` started and that live."""
    # Not by /proc/PID/task/*/children: the threads of a JVM end while they are listed.
    return [child for child in running() if stat(child)[1:2] == [str(pid)]]


def descendants(pid: int) -> list[int]:
    """The same, and what those started."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def session(leader: int) -> list[int]:
    """The processes of the session that ``leader`` leads, whoever adopted them since."""
    return [pid for pid in running() if stat(pid)[3:4] == [str(leader)]]


def running() -> list[int]:
    """Every process that lives."""
    entries = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [pid for pid in entries if runs(pid)]


def command_line(pid: int) -> str:
    """The words that ``pid`` was started with; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
