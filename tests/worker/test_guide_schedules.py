"""The programs in docs/guide/schedules.md run as printed."""

from __future__ import annotations

import re
import subprocess
import sys

from headwater.worker.declare.schedules import MOST_MISSED, MOST_TICKS, ON_TIME_MS, SHORTEST_MS
from tests.guides import GUIDES

TEXT = (GUIDES / "schedules.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)


def printed(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_program_for_many_messages_prints_the_output_shown() -> None:
    assert printed(PROGRAMS[0]) == PRINTED[0]


def test_the_program_of_schedules_prints_the_output_shown() -> None:
    lines = printed(PROGRAMS[1]).splitlines()
    assert [one for one in lines if one in PRINTED[1].splitlines()] == PRINTED[1].splitlines()
    assert len(lines) == 2 + 60 + 1 + 2


def test_the_numbers_of_the_guide_are_those_of_the_program() -> None:
    assert (MOST_MISSED, MOST_TICKS, ON_TIME_MS, SHORTEST_MS) == (1_000, 10_000, 60_000, 100)
    for text in ("the last 1,000", "about 10,000 ticks", "within a minute", "at least 100 ms"):
        assert text in TEXT
