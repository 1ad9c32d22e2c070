"""Offloaded jobs: the part of a long command that runs in a thread, on a snapshot.

    command ── looks up, checks, takes a snapshot ──▶ Job ── steps, off the loop ──▶ result
                                                       ▲                               │
                                                       └── another job, or None ── finish, in a later turn

Rule 1. The steps use nothing that the loop changes: only a snapshot, a copy of the request and their own
        objects.
Rule 2. ``finish`` follows the rules of a command (call.py, rules 2 and 3). It looks up everything again, because
        other commands have run in between, and then admits, mutates and replies.
Rule 3. A job is done immediately in EXEC and scripts, and for an embedded client, whose own thread runs the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.commands.call import Call
from headwater.common.steps import Steps, do_all
from headwater.resp.arguments import Arguments


class Job:
    """A job. ``arguments`` is a copy of the request, independent of its buffer. ``finish`` receives the call and the
    result of ``steps``, and may return another job. ``discard`` receives a result that ``finish`` does not get."""

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
    """Do a job, and the jobs that it returns, immediately. Raises `CommandError` as its steps and ``finish``
    do."""
    following: Job | None = job
    while following is not None:
        following = following.finish(call, do_all(following.steps))
