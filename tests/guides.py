"""Runs the programs in the guides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guide"


def outputs(guide: str, *replacements: tuple[str, str], section: str = "") -> list[str]:
    """Return the output of each Python program of a guide, or of one of its sections. A program that
    prints an error fails the test."""
    text = (GUIDES / guide).read_text(encoding="utf-8")
    if section:
        text = text.partition(section)[2].partition("\n## ")[0]
    printed = []
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for old, new in replacements:
            program = program.replace(old, new)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed.append(done.stdout)
    return printed
