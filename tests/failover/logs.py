"""The logs of the clients: what each attempted, and what it was answered.

A line is a JSON array, the fields of `Event`. Each actor has a file of its own, and flushes each line before its next
action, so the log of an actor that is killed lacks nothing but the last answer. Times are the system's monotonic
clock, which is the same in all namespaces.

    did         what             id          asked
    tried       message number               an XADD is about to be sent
    answered    message number   entry's id  it was answered (with WAIT: and enough replicas have it)
    failed      message number               it was refused, or nobody knows; the reason is in ``text``
    delivered                    entry's id  time at which the read was sent that delivered the entry
    acking                       entry's id  an XACK is about to be sent
    acked                        entry's id  it was answered with 1
    handled     message number   entry's id  a handler of the worker has run
    error                                    anything else went wrong
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PATTERN: Final = "*.log.jsonl"


class Event(NamedTuple):
    """A line of a log."""

    at: float
    who: str
    did: str
    stream: str
    what: str = ""
    id: str = ""
    asked: float = 0.0
    text: str = ""


class Log:
    """Writes the log of one actor."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        self._lock = threading.Lock()
        self._file = (directory / f"{who}{PATTERN[1:]}").open("a", encoding="utf-8")

    def write(
        self,
        did: str,
        stream: str,
        *,
        what: str = "",
        id: str = "",
        asked: float = 0.0,
        text: str = "",
    ) -> None:
        """Write a line, and hand it to the system before this returns."""
        event = Event(time.monotonic(), self.who, did, stream, what, id, asked, text)
        with self._lock:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()


class Reader:
    """Reads the logs of a directory while they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.events: list[Event] = []
        """Everything read so far; in order within an actor, not across actors."""

    def more(self) -> list[Event]:
        """Read what was added, and return it."""
        found = [
            event for path in sorted(self._directory.glob(PATTERN)) for event in self._tail(path)
        ]
        self.events += found
        return found

    def _tail(self, path: Path) -> Iterator[Event]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may not be complete yet
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            yield Event(*json.loads(line))
