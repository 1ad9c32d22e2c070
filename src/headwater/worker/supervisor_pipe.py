"""What a worker process tells its supervisor, over a pipe: one line of JSON for each event.

    ["joined", stream, group]     this process is a member of the group
    ["refused", stream, group]    it could not join, for a reason that waiting does not change
    ["settled"]                   its first settlement was done: the process gets work done
    ["progress", number, {…}]     the progress of one of its consumers, each second if asked for

Rule 1. A report is never waited for: a supervisor that does not read does not stop its workers.
Rule 2. A line is written at once or not at all, so it is shorter than `PIPE_BYTES`.
Rule 3. A line of another form, which only a handler can have written, is skipped.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from headwater.worker.statistics import ConsumerStatistics

GROUP = tuple[str, str]
"""Stream and group."""

READ_BYTES = 65_536

PIPE_BYTES = 4_096
"""What Linux writes into a pipe in one piece."""

SHOWN_CHARACTERS = 100
"""Of a name, in a report of progress."""


class Reports:
    """The worker's end. Without a descriptor nothing is reported."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._settled = False
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def joined(self, stream: str, group: str) -> None:
        """This process is a member of the group."""
        self._write("joined", stream, group)

    def refused(self, stream: str, group: str) -> None:
        """This process could not join the group."""
        self._write("refused", stream, group)

    def settled(self) -> None:
        """A settlement was done. Only the first one is reported."""
        if not self._settled:
            self._settled = True
            self._write("settled")

    def progress(self, number: int, found: ConsumerStatistics) -> None:
        """How one consumer gets on."""
        if found.progress is None:
            return
        ages = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in found.progress._asdict().items()
        }
        names = {"name": found.name, "stream": found.stream, "group": found.group}
        shown = {name: value[:SHOWN_CHARACTERS] for name, value in names.items()}
        self._write("progress", number, {**shown, **ages, "late": found.late})

    def _write(self, *words: Any) -> None:
        if self._descriptor is None:
            return
        line = json.dumps(words).encode() + b"\n"
        if len(line) > PIPE_BYTES:
            return
        try:
            os.write(self._descriptor, line)
        except OSError:
            pass  # a full pipe, or a supervisor that is gone


class ReceivedReports:
    """The supervisor's end: what one worker process has reported so far."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.joined: set[GROUP] = set()
        self.refused: set[GROUP] = set()
        self.settled = False
        self.progress: dict[int, dict[str, Any]] = {}
        """The last report of each consumer."""
        self.heard_at = time.monotonic()
        self._rest = b""

    def close_writer(self) -> None:
        """The process has its own copy of this end."""
        os.close(self.writer)

    def close(self) -> None:
        os.close(self.reader)

    def read(self) -> bool:
        """Take in what has arrived; False when nothing more can."""
        while True:
            try:
                data = os.read(self.reader, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                try:
                    self._take(json.loads(line))
                except ValueError:
                    pass  # a handler wrote it

    def _take(self, report: Any) -> None:
        match report:
            case ["joined", str(stream), str(name)]:
                self.joined.add((stream, name))
            case ["refused", str(stream), str(name)]:
                self.refused.add((stream, name))
            case ["settled"]:
                self.settled = True
            case ["progress", int(number), dict(found)]:
                self.progress[number] = found
                self.heard_at = time.monotonic()
