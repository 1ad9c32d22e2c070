"""Offloaded jobs: the part of a long command that runs in a thread, on a snapshot.

    command ── looks up, checks, takes a snapshot ──▶ Job ── steps, off the loop ──▶ result
                                                       ▲                               │
                                                       └── another job, or None ── finish, in a later turn

Rule 1. The steps use nothing that the loop changes: only a snapshot, a copy of the request and objects
        of their own.
Rule 2. ``finish`` is like a command (call.py, rules 2 and 3): it looks up everything again, because other
        commands have run in between, then admits, mutates and replies.
Rule 3. In EXEC and scripts, and for an embedded client, whose own thread runs the turn, a job is done
        at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.commands.call import Call
from headwater.common.steps import Steps, do_all
from headwater.resp.arguments import Arguments


class Job:
    """A job. ``arguments`` are a copy of the request, independent of its buffer. ``finish`` receives the
    call and the result of ``steps``; ``discard`` receives a result that will not be finished."""

    def __init__(
        self,
        arguments: Arguments,
        steps: Steps[Any],
        finish: Callable[[Call, Any], Job | None],
        discard: Callable[[Any], None] | None = None,
    ) -> None:
        self.arguments = arguments
        self.steps = steps
        self.finish = finish
        self.discard = discard


def may_offload(call: Call) -> bool:
    """Return whether the client of this call can wait for a job."""
    return call.may_block and call.offloads


def carry_out(call: Call, job: Job) -> None:
    """Do a job, and those that it returns, at once. Raises `CommandError`."""
    following: Job | None = job
    while following is not None:
        following = following.finish(call, do_all(following.steps))
