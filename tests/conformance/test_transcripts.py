"""Every transcript is still told as it was: what no server to compare with has stands there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance import transcript


@pytest.mark.parametrize(
    "path", sorted(transcript.DIRECTORY.glob("*.txt")), ids=lambda path: path.stem
)
def test_a_transcript_is_told_as_it_was(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    told = transcript.rewritten(text)
    if os.environ.get("REWRITE_TRANSCRIPTS") == "1":
        path.write_text(told, encoding="utf-8")
    else:
        assert told == text, "REWRITE_TRANSCRIPTS=1 writes it anew; read the difference"
