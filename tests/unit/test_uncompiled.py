"""A plain installation warns once, visibly, and says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater

PACKAGE = Path(headwater.__file__).parent

OPEN_TWICE = "import headwater; headwater.connect('headwater://memory'); headwater.connect('headwater://memory')"


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts this Python on a copy of the package that has no extensions."""
    shutil.copytree(
        PACKAGE, tmp_path / "headwater", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    )
    environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_PURE"}

    def start(*arguments: str, **changed: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env={**environment, "PYTHONPATH": str(tmp_path), **changed},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.slow
def test_opening_embedded_stores_warns_once(plain: Callable[..., subprocess.Popen[str]]) -> None:
    # When a program opens two stores
    process = plain("-c", OPEN_TWICE)
    errors = process.communicate()[1]

    # Then it is warned once, with the remedy
    assert process.returncode == 0, errors
    assert errors.count("NotCompiled") == 1
    assert "gcc python3-dev" in errors


@pytest.mark.slow
def test_a_server_logs_the_warning_when_it_starts(
    plain: Callable[..., subprocess.Popen[str]],
) -> None:
    # When a server starts
    process = plain("-m", "headwater", "serve", "--port", "0", "--dir", "data")
    assert process.stdout is not None
    assert "plain" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    errors = process.communicate()[1]

    # Then its log has the warning
    assert errors.count("not compiled") == 1


@pytest.mark.slow
def test_plain_python_that_was_asked_for_warns_of_nothing(
    plain: Callable[..., subprocess.Popen[str]],
) -> None:
    # When HEADWATER_PURE asks for plain Python
    process = plain("-c", OPEN_TWICE, HEADWATER_PURE="1")
    errors = process.communicate()[1]

    # Then nothing is warned of
    assert process.returncode == 0
    assert errors == ""
