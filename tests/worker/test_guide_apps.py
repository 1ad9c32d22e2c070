"""The programs in docs/guide/worker-apps.md run as printed."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.worker import Ending, Middleware
from headwater.worker.declare.statistics import Counters
from tests.guides import GUIDES

TEXT = (GUIDES / "worker-apps.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_guide_runs(number: int, tmp_path: Path) -> None:
    # Given a program, as a module of tests
    source = PROGRAMS[number].replace("async def test_", "async def run_")
    if "async def run_" in source:
        source += "\n\ndef test_it():\n    import asyncio\n    asyncio.run(run_bills_are_kept())\n"
    if "def test_" not in source:
        source += "\n\ndef test_it():\n    pass\n"
    (tmp_path / "test_shop.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    # When its tests run, then they pass
    done = subprocess.run(
        [*command, "-p", "headwater.pytest_plugin", "test_shop.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("beginning", "printed"),
    [
        ("import time", "orders took 0 s\norders is acknowledged\n"),
        (
            "import msgspec\n\nfrom headwater import App, Dead, DeadLetter",
            "1700000000000-0 of orders died in billing: headwater.Dead: negative price\n",
        ),
        ("import msgspec\n\nfrom headwater import App, Stream\n", "2 2 2 []\n"),
    ],
)
def test_a_program_of_the_guide_prints_the_output_shown(beginning: str, printed: str) -> None:
    program = next(one for one in PROGRAMS if one.startswith(beginning) and "__main__" in one)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == printed


def test_the_guide_lists_every_hook_ending_and_counter() -> None:
    hooks = [name for name in vars(Middleware) if not name.startswith("_")]
    counters = [one.name for one in dataclasses.fields(Counters)]
    endings = [one.name for one in Ending]
    missing = [name for name in (*hooks, *counters, *endings) if name not in TEXT]
    assert missing == []
