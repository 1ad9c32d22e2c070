"""Replies that are held back until replicas have what they show (``synchronous-replicas``).

    end of a turn ── offset of the store ──▶ marks: up to this byte of a client's output at this offset
    REPLCONF ACK ── enough replicas have the offset ──▶ the output up to the mark is released

Rule 1. A reply is held back if its command could see or change a key, and with it all later output of that client: what is
        shown is on enough replicas, so nobody sees what a failover would take back. PING, INFO and the like are not.
Rule 2. Turns do not wait for each other: the marks of later turns follow.
Rule 3. What is held back is never sent if the server becomes a replica, or the client is disconnected: the outcome of its
        commands is unknown to the client.
"""

from __future__ import annotations

from collections import deque
from sys import maxsize
from typing import NamedTuple

from headwater.server.services.replication.replicas import ConnectedReplicas
from headwater.server.session.session import Session


class Mark(NamedTuple):
    """The output of ``session`` up to byte ``position``, counted since its beginning, may be sent at ``offset``."""

    offset: int
    session: Session
    position: int


class HeldReplies:
    """The held replies of a node."""

    def __init__(self, replicas: ConnectedReplicas) -> None:
        self._replicas = replicas
        self._marks: deque[Mark] = deque()
        self._required = 0
        """Number of replicas that must have what a reply shows."""
        self._durable = False
        """True if they must have it on disk."""
        self._reached = -1
        """Offset up to which so many replicas have had everything, since this server became a primary."""

    def require(self, replicas: int, *, durable: bool) -> None:
        """Hold back replies from now on until so many replicas have what they show, on disk if ``durable``. With 0, release
        all."""
        if (replicas, durable) != (self._required, self._durable):
            self._required, self._durable, self._reached = replicas, durable, -1
            self.release()

    def end_turn(self, changed: list[Session], turn: int, offset: int) -> None:
        """Release the output of turn number ``turn``, after which the store has ``offset``, or hold it back."""
        ready = offset <= self._confirmed()
        for session in changed:
            output = session.output
            output.changed = False
            if session.closed:
                continue
            if output.held or (output.shown_turn == turn and not ready):
                output.held += 1
                self._marks.append(
                    Mark(offset, session, output.released_bytes + len(output.outbox))
                )
                continue
            if output.release() or session.closing:
                session.tell()
        if ready:
            self.release()

    def release(self) -> None:
        """Release what enough replicas have now."""
        marks, confirmed = self._marks, self._confirmed()
        while marks and marks[0].offset <= confirmed:
            _offset, session, position = marks.popleft()
            session.output.held -= 1
            if not session.closed:
                session.output.release_to(position)
                session.tell()

    def drop(self) -> None:
        """Disconnect the clients whose replies are held back (rule 3)."""
        marks, self._marks, self._reached = self._marks, deque(), -1
        for mark in marks:
            mark.session.output.held = 0
            mark.session.output.discard(0)
            mark.session.closing = True
            mark.session.tell()

    def _confirmed(self) -> int:
        if not self._required:
            return maxsize
        now = self._replicas.confirmed(self._required, durable=self._durable)
        self._reached = max(self._reached, now)
        return self._reached
