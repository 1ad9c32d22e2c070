"""A shell completes commands and options with the script of `headwater --show-completion`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent

SCRIPT = """
script=$(headwater --show-completion)
eval "$script"
COMP_WORDS=(headwater {words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_headwater_completion headwater
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("program", ["headwater", "headwater.cli.main"])
def test_a_module_prints_the_script_of_a_shell(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", program, "--show-completion"],
        env=os.environ | {"SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_headwater_completion()" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"), [("pen", "pending"), ("pending re", "release"), ("lag --m", "--max")]
)
def test_bash_completes_commands_and_options(words: str, found: str) -> None:
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", SCRIPT.format(words=words)],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [found]
