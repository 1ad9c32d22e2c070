"""What a worker process tells its supervisor, over a pipe: one line of JSON for each event.

    ["joined", stream, group]     this process is a member of the group
    ["refused", stream, group]    it could not join, for a reason that waiting does not change
    ["settled"]                   its first settlement was done: the process gets work done

Rule. A report is never waited for: a supervisor that does not read does not stop its workers.
"""

from __future__ import annotations

import json
import os

GROUP = tuple[str, str]
"""Stream and group."""

READ_BYTES = 65_536


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

    def _write(self, *words: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(words).encode() + b"\n")
        except OSError:
            pass  # a full pipe, or a supervisor that is gone


class Life:
    """The supervisor's end: what one worker process has reported so far."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.joined: set[GROUP] = set()
        self.refused: set[GROUP] = set()
        self.settled = False
        self._rest = b""

    def close_writer(self) -> None:
        """The process has its own copy of this end."""
        os.close(self.writer)

    def close(self) -> None:
        os.close(self.reader)

    def read(self) -> None:
        """Take in what has arrived."""
        while True:
            try:
                data = os.read(self.reader, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(*json.loads(line))

    def _take(self, event: str, *group: str) -> None:
        match event, group:
            case "joined", (stream, name):
                self.joined.add((stream, name))
            case "refused", (stream, name):
                self.refused.add((stream, name))
            case "settled", ():
                self.settled = True
