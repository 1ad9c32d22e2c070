"""The pipe over which a worker process reports to its supervisor: one line of JSON for each event.

    ["joined", stream, group]     this process has joined the group
    ["refused", stream, group]    it cannot join the group, for a reason that waiting does not resolve
    ["store", url]                the address of its store
    ["holds", {…}]                a consumer whose leases it renews from now on: a `lease_board.LeaseReport`
    ["gives back", slot]          it does not renew the leases of this consumer any more, because the consumer ended
    ["blocked", sentence]         its event loop is blocked
    ["hung", number, sentence]    all handlers of a consumer hang; its progress follows
    ["suspect", stream, group]    it handed back a suspected poison message, for the quarantine process
    ["settled"]                   the store has replied to its first settlement: the process is working
    ["progress", number, {…}]     the progress of one of its consumers, every second if requested

The supervisor passes the groups of suspects to the quarantine process. It writes one line of JSON for each to the
standard input of that process: ``[stream, group]``.

Rule 1. Writing a report never blocks: a supervisor that does not read does not delay its workers.
Rule 2. A line is written as a whole or not at all, so it is at most `PIPE_BYTES` long. A long name of a stream or group
        is written as its digest (`reported`). For a consumer with such a name, ``holds`` is not written.
Rule 3. A line of another form is skipped. Only a handler can have written it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headwater.common.names import bytes_of
from headwater.worker.declare.statistics import ConsumerStatistics
from headwater.worker.leases.lease_board import (
    TICKS,
    Board,
    LeaseReport,
    LeaseSlot,
    board_file,
)

GROUP = tuple[str, str]
"""A group, as the names of the stream and of the group (`reported`)."""

READ_BYTES = 65_536

PIPE_BYTES = 4_096
"""Number of bytes that Linux writes into a pipe atomically."""

NAME_BYTES = 1_000
"""Maximum length of a name as JSON that is written as it is, in bytes."""

SENTENCE_CHARACTERS = 600

SHOWN_CHARACTERS = 80
"""Maximum number of characters of a name in a progress report."""


def reported(name: str) -> str:
    """Return the form in which the name of a stream or group is reported: itself or, if it is long, its SHA-256."""
    if len(json.dumps(name)) <= NAME_BYTES:
        return name
    return hashlib.sha256(bytes_of(name)).hexdigest()


class Reports:
    """The worker's end of the pipe. Without a descriptor nothing is reported. ``board`` is the descriptor of the
    shared memory in which the worker writes the times of its lease renewals."""

    def __init__(self, descriptor: int | None = None, board: int | None = None) -> None:
        self._descriptor = descriptor
        self._settled = False
        self._slots = 0
        self._board = None
        self.suspected_in: set[GROUP] = set()
        """The groups that have had a suspect, as the supervisor reports them to the quarantine process."""
        self.new_suspects: Callable[[], None] = lambda: None
        """Function that is called when the supervisor has reported another group in `suspected_in`."""
        self._said = b""
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)
        if board is not None:
            self._board = Board(board)
            os.close(board)

    @property
    def supervised(self) -> bool:
        """True if a supervisor renews leases for this process."""
        return self._board is not None

    def store(self, url: str) -> None:
        """Report the address of the store, unless it is in this process."""
        if not url.startswith("headwater:"):
            self._write("store", url)

    def holds(
        self,
        slot: LeaseSlot,
        stream: str,
        group: str,
        consumer: str,
        *,
        claim_after_ms: int,
        lease_ms: int,
        ordered: bool,
        longest_ms: int | None = None,
    ) -> None:
        """Report a consumer whose leases this process renews from now on, and give ``slot`` a place in the memory."""
        if self._board is None or self._slots == TICKS:
            return
        slot.take(self._board, self._slots, time.monotonic())
        one = LeaseReport(
            self._slots, stream, group, consumer, claim_after_ms, lease_ms, ordered, longest_ms
        )
        self._slots += 1
        self._write("holds", one._asdict())

    def gives_back(self, slot: LeaseSlot) -> None:
        """Report that this process does not renew the leases of the slot's consumer any more."""
        if slot.number is not None:
            self._write("gives back", slot.number)

    def ticked(self, at: float) -> None:
        """Record that threads of this process ran at ``at``. Called from another thread."""
        if self._board is not None:
            self._board.renewed(TICKS, at)

    def joined(self, stream: str, group: str) -> None:
        """Report that this process has joined the group."""
        self._write("joined", reported(stream), reported(group))

    def refused(self, stream: str, group: str) -> None:
        """Report that this process could not join the group."""
        self._write("refused", reported(stream), reported(group))

    def blocked(self, sentence: str) -> None:
        """Report that the event loop is blocked. Called from another thread."""
        self._write("blocked", sentence[:SENTENCE_CHARACTERS])

    def suspect(self, stream: str, group: str) -> None:
        """Report that this process handed back a suspected poison message."""
        self._write("suspect", reported(stream), reported(group))

    def heard(self, data: bytes) -> None:
        """Process the data that the supervisor has written to standard input."""
        *lines, self._said = (self._said + data).split(b"\n")
        self.suspected_in |= {(stream, group) for stream, group in map(json.loads, lines)}
        self.new_suspects()

    def settled(self) -> None:
        """Report that a settlement was done. Only the first one is reported."""
        if not self._settled:
            self._settled = True
            self._write("settled")

    def progress(self, number: int, found: ConsumerStatistics, *, loop_delay: float = 0.0) -> None:
        """Report the progress of one consumer, and the delay of the event loop."""
        if found.progress is None:
            return
        ages = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in found.progress._asdict().items()
        }
        hung = ages.pop("hung")
        if hung:
            self._write("hung", number, str(hung)[:SENTENCE_CHARACTERS])
        names = {"name": found.name, "stream": found.stream, "group": found.group}
        shown = {name: value[:SHOWN_CHARACTERS] for name, value in names.items()}
        rest = {**asdict(found.counters), "late": found.late, "loop_delay": round(loop_delay, 3)}
        self._write("progress", number, {**shown, **ages, **rest})

    def _write(self, *words: Any) -> None:
        if self._descriptor is None:
            return
        line = json.dumps(words).encode() + b"\n"
        if len(line) > PIPE_BYTES:
            return
        try:
            os.write(self._descriptor, line)
        except OSError:
            pass  # the pipe is full, or the supervisor has ended


class ReceivedReports:
    """The supervisor's end of the pipe, with the reports of one worker process so far."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.board_file = board_file()
        self.board = Board(self.board_file)
        self.url: str | None = None
        self.leases: dict[int, LeaseReport] = {}
        """The consumers whose leases the process renews, by their place in the shared memory."""
        self.held = asyncio.Event()
        """Set when `leases` has another consumer."""
        self.joined: set[GROUP] = set()
        self.refused: set[GROUP] = set()
        self.suspected: set[GROUP] = set()
        """Groups with a suspected poison message that the process handed back."""
        self.settled = False
        self.silence = ""
        """Reason why the process does not report, found by it or by its supervisor; empty while it reports."""
        self._hung: dict[int, str] = {}
        self.progress: dict[int, dict[str, Any]] = {}
        """The last progress report of each consumer, by its number."""
        self.heard_at = time.monotonic()
        self._rest = b""

    def close_writer(self) -> None:
        """Close the descriptors that the worker process has copied: the writing end, and the memory's file."""
        os.close(self.writer)
        os.close(self.board_file)

    def close(self) -> None:
        os.close(self.reader)
        self.board.close()

    def read(self) -> bool:
        """Read the reports that have arrived. Return False at the end of the pipe."""
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
                    pass  # a handler has written this line

    def _take(self, report: Any) -> None:
        match report:
            case ["joined", str(stream), str(name)]:
                self.joined.add((stream, name))
            case ["refused", str(stream), str(name)]:
                self.refused.add((stream, name))
            case ["store", str(url)]:
                self.url = url
            case ["holds", dict(one)] if {*one} == {*LeaseReport._fields}:
                self.leases[one["slot"]] = LeaseReport(**one)
                self.held.set()
            case ["gives back", int(slot)]:
                self.leases.pop(slot, None)
            case ["suspect", str(stream), str(name)]:
                self.suspected.add((stream, name))
            case ["settled"]:
                self.settled = True
            case ["hung", int(number), str(sentence)]:
                self._hung[number] = sentence
            case ["blocked", str(sentence)]:
                self.silence = sentence
            case ["progress", int(number), dict(found)]:
                self.progress[number] = {**found, "hung": self._hung.pop(number, "")}
                self.silence = ""
                self.heard_at = time.monotonic()
