"""Stacks of running code: of a handler in a thread, or of one that waits in the event loop. Also tells whether a
thread runs at all."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

SHOWN_FRAMES = 5
"""Number of innermost frames that `compact` shows."""

SHOWN_CHARACTERS = 600


def frames_of_thread(ident: int | None) -> list[traceback.FrameSummary]:
    """Return the stack of a thread, the outermost frame first; empty if ``ident`` is not a running thread."""
    frame = None if ident is None else sys._current_frames().get(ident)  # noqa: SLF001  # documented
    return [] if frame is None else [*traceback.extract_stack(frame)]


def frames_of_coroutine(awaited: Any) -> list[traceback.FrameSummary]:
    """Return the stack of a suspended coroutine and of the coroutines that it awaits."""
    found: list[FrameType] = []
    while awaited is not None and len(found) < 1_000:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        inner = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        if inner is None and type(awaited).__name__ == "coroutine_wrapper":
            # Compiled code awaits a coroutine through this wrapper, which has no attribute for the coroutine.
            inner = next(iter(gc.get_referents(awaited)), None)
        awaited = inner
    return [
        traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame in found
        if frame.f_lineno is not None  # None in compiled code
    ]


def context_switches(thread: Path) -> int:
    """Return a thread's number of context switches, by its directory in /proc. Raises `OSError`. Source: proc(5)."""
    lines = (thread / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def compact(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the innermost frames in one line, such as ``shop.py:17 bill > client.py:40 send``."""
    shown = [f"{PurePath(one.filename).name}:{one.lineno} {one.name}" for one in frames]
    return (" > ".join(shown[-SHOWN_FRAMES:]) or "an unknown place")[:SHOWN_CHARACTERS]


def full(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return a stack as a traceback shows it."""
    return "".join(traceback.format_list([*frames])).rstrip()
