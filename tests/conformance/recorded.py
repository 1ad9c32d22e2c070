"""Replies in text files, each under its command, indented, so that the files can be read and run without a server.

Written cases and plays have Headwater's replies, without what depends on the run. `test_recorded.py` compares them with
Headwater, `test_cases.py` and `test_scenes.py` compare Headwater with real servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.testing.clock import ManualClock
from tests.conformance import cases, scenes
from tests.conformance.endpoints import HeadwaterEndpoint
from tests.conformance.masks import Circumstances, comparable
from tests.conformance.scenes import LocalStage
from tests.conformance.transcript import INDENT, shown


def rewritten(path: Path) -> str:
    """Return a file of cases or plays with the current replies of Headwater."""
    found = of_scenes(path) if path.parent == scenes.DIRECTORY else of_cases(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith(("#", "==")):
            lines += [INDENT + one for one in next(found)]
    assert next(found, None) is None, "each reply has its command"
    return "\n".join(lines) + "\n"


def of_cases(path: Path) -> Iterator[list[str]]:
    """Yield the reply to each command of a file of cases."""
    for case in cases.read(path):
        endpoint = HeadwaterEndpoint(ManualClock())  # the time until a distant day changes daily
        history = case.history(endpoint.now_ms())
        replies = endpoint.run(history)
        for reply in comparable(history, replies, Circumstances(endpoint.now_ms())):
            yield [shown(reply)]


def of_scenes(path: Path) -> Iterator[list[str]]:
    """Yield what each client has received after each line of a file of plays."""
    for scene in scenes.read(path):
        for events in scenes.play(scene, LocalStage()):
            yield [f"{name}: {shown(reply)}" for name in sorted(events) for reply in events[name]]
