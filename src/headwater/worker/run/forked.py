"""Ends the child of a fork in a handler, which would be a second worker with the same connections.

Rule 1. The child ends where the handler's end would become an outcome, so that only the parent's ending counts.
Rule 2. It ends by `os._exit`, because it must not close what it shares with its parent.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from traceback import format_exception
from types import TracebackType
from typing import NoReturn

from headwater.common.forks import FORKS


def end_child(error: BaseException | None) -> NoReturn:
    """End this process with the exit status that Python would give to a program that ends by ``error``. None means
    that it returned."""
    try:
        status = 0 if error is None else _status(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or None
                stream.flush()
    except BaseException:
        status = 1
    finally:
        os._exit(status & 0xFF)


def _status(error: BaseException) -> int:
    """Print an error, and return the exit status for it. Source: documentation of `sys.exit`."""
    if not isinstance(error, SystemExit):
        _print("".join(format_exception(error)))
        return 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    _print(f"{error.code}\n")
    return 1


def _print(text: str) -> None:
    # Not by `sys.stderr`: a thread that the child does not have may hold its lock.
    os.write(2, text.encode(errors="backslashreplace"))


class ForkedChildren:
    """A context manager in which a handler runs. It ends a child that was forked since this object was created."""

    def __init__(self) -> None:
        self._generation = FORKS.generation

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if FORKS.generation != self._generation:
            end_child(error)
