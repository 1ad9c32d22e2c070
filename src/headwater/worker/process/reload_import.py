"""``headwater work --reload`` of an app that cannot be imported: logs the error and waits for a change.

Rule 1. This waits only after an error in the app's code. A wrong MODULE:APP is an error as without ``--reload``.
Rule 2. Each attempt imports all modules of the app again.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from headwater.messages import error_text
from headwater.worker.app import App
from headwater.worker.process.source_watch import SourceWatch, is_source
from headwater.worker.process.targets import find_app

log = logging.getLogger("headwater.worker")

LOOK_SECONDS = 0.2
"""How often source files are checked."""


class Fault(NamedTuple):
    """Where the app's code raised an error."""

    file: str
    line: int
    text: str


def find_app_or_wait(target: str) -> App:
    """Return the app of `find_app`. While the app's code raises an error, log it and wait for a change."""
    while True:
        before = set(sys.modules)
        watch = SourceWatch(Path.cwd())
        try:
            return find_app(target)
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
        watch.add(fault.file)
        log.error(
            "%s cannot start: %s, line %d: %s; waiting for a source file to change",
            target,
            fault.file,
            fault.line,
            fault.text,
        )
        _wait_for_change(watch)
        _forget(set(sys.modules) - before)


def _wait_for_change(watch: SourceWatch) -> None:
    while not (changed := watch.changed()):
        time.sleep(LOOK_SECONDS)
    log.info("%s changed: starting", changed[0])


def fault_of(error: Exception) -> Fault | None:
    """Return the innermost place in the app's source code where the error was raised, or None if it was not raised
    there. Errors of `find_app` have the app's error as their cause."""
    if isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Fault(error.filename, error.lineno or 0, f"{type(error).__name__}: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if is_source(frame.filename):
            return Fault(frame.filename, frame.lineno or 0, error_text(error))
    return None


def _forget(modules: Iterable[str]) -> None:
    """Remove the app's modules among these from ``sys.modules``, so that they are imported again."""
    for name in modules:
        if is_source(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
    importlib.invalidate_caches()
