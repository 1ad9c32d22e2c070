"""Runs the programs in the guides, and formats replies as redis-cli does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from headwater.testing.replies import Failure, Reply, Simple

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


def as_redis_cli(reply: Reply) -> str:
    """Return a reply in redis-cli's form."""
    if isinstance(reply, Failure):
        return f"(error) {reply.text.decode()}"
    if isinstance(reply, Simple):
        return reply.text.decode()
    return f"(integer) {reply}" if isinstance(reply, int) else f'"{bytes(reply).decode()}"'  # type: ignore[arg-type]
