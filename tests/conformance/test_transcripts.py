"""Replays every transcript. Transcripts cover what other servers do not have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance import transcript


@pytest.mark.parametrize(
    "path", sorted(transcript.DIRECTORY.glob("*.txt")), ids=lambda path: path.stem
)
def test_a_transcript_gives_the_recorded_replies(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shown = transcript.rewritten(text)
    if os.environ.get("REWRITE_TRANSCRIPTS") == "1":
        path.write_text(shown, encoding="utf-8")
    else:
        assert shown == text, "REWRITE_TRANSCRIPTS=1 rewrites it; review the difference"
