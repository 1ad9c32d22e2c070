"""Headwater's replies are those recorded in cases/*.txt and plays/*.txt, which real servers verify."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance import cases, recorded, scenes

FILES = [*sorted(cases.DIRECTORY.glob("*.txt")), *sorted(scenes.DIRECTORY.glob("*.txt"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_replies_are_those_in_the_file(path: Path) -> None:
    shown = recorded.rewritten(path)
    if os.environ.get("REWRITE_TRANSCRIPTS") == "1":
        path.write_text(shown, encoding="utf-8")
    else:
        written = path.read_text(encoding="utf-8")
        assert shown == written, "REWRITE_TRANSCRIPTS=1 rewrites it; review the difference"
