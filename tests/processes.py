"""Reads from ``/proc`` about the processes that a test started."""

from __future__ import annotations

from pathlib import Path


def stat(pid: int | str) -> list[str]:
    """Return state, parent, group and session of a process or ``PID/task/TID``; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name, in brackets, may hold anything.
    return text.rpartition(")")[2].split()[:4]


def runs(pid: int) -> bool:
    """Whether the process is alive. A zombie is not."""
    return stat(pid)[:1] not in ([], ["Z"])


def children(pid: int) -> list[int]:
    """Return the live processes that ``pid`` started."""
    # /proc/PID/task/*/children is unreliable: threads of a JVM end while they are listed.
    return _those(1, pid)


def descendants(pid: int) -> list[int]:
    """Return the live processes that ``pid`` started, directly or indirectly."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def session(leader: int) -> list[int]:
    """Return the live processes of the session that ``leader`` leads, whatever their parent is now."""
    return _those(3, leader)


def _those(field: int, value: int) -> list[int]:
    """Return the live processes that have ``value`` in this field of `stat`."""
    table = {int(entry.name): stat(entry.name) for entry in Path("/proc").glob("[0-9]*")}
    return [
        pid
        for pid, fields in table.items()
        if fields and fields[0] != "Z" and fields[field] == str(value)
    ]


def with_variable(name: str, value: str) -> list[int]:
    """Return the live processes that were started with this environment variable."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or belongs to another user
        if wanted in environment and runs(int(entry.name)):
            found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    """Return the command line of ``pid``; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
