"""What of a command is worth a thread: a job.

    command ── looks up, checks, takes a snapshot ──▶ Job ── steps, off the loop ──▶ result
                                                       ▲                               │
                                                       └── another job, or None ── finish, in a later turn

Rule 1. The steps touch nothing that the loop changes: a snapshot, the request's own copy, what they
        make themselves.
Rule 2. ``finish`` is a command again (call.py, rules 2 and 3): it looks at everything anew, because
        other commands have run meanwhile, then admits, mutates and replies.
Rule 3. Within EXEC and scripts, and for an embedded client, whose own thread runs the turn, a job is
        carried out on the spot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.commands.call import Call
from headwater.resp.arguments import Arguments
from headwater.steps import Steps, do_all


class Job:
    """``arguments`` are the request's, independent of the buffer that it came in. ``discard`` is given a
    result that nobody finishes any more."""

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
    """Whether the client of this call can wait for a job."""
    return call.may_block and call.offloads


def carry_out(call: Call, job: Job) -> None:
    """Do a job and all that follow from it here and now. Raises `CommandError`."""
    following: Job | None = job
    while following is not None:
        following = following.finish(call, do_all(following.steps))
