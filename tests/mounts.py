"""Runs programs where a directory cannot be written: on read-only mounts, and without root's right to ignore permissions.

A mount is made in a namespace of its own, with ``unshare``: nobody else sees it, and it ends with the program. This
works as root and, where the system allows user namespaces, as any user.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

_PR_CAPBSET_DROP: Final = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2

READ_ONLY_BIND: Final = (
    'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'
)
"""The directory itself, seen through a mount that is read-only."""
READ_ONLY_TMPFS: Final = (
    'mount -t tmpfs -o size=200m,mode=700 none "$2" && cp -a "$1/." "$2" && mount -o remount,ro "$2" && '
    'shift 2 && exec "$@"'
)
"""A copy of the directory on another file system, which is read-only."""

_PROGRAM: Final = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from headwater.cli import backup, check, history, journal, repair
from headwater.cli.main import main
from headwater.persistence import checking, disk_use, dumping, history, repairing

def run(words):
    printed, complaint, status = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(printed), redirect_stderr(complaint):
        try:
            main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, printed.getvalue(), complaint.getvalue()

for words in json.load(sys.stdin):
    if not os.fork():
        print(json.dumps(run(words)), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, words
"""


class Result(NamedTuple):
    """What a command has done."""

    status: int
    printed: str
    complaint: str


def mounted(script: str, source: Path, target: Path) -> list[str]:
    """Return the beginning of a command line that runs with ``source`` mounted at ``target``."""
    rights = ["--map-root-user"] if os.geteuid() else []
    inside = ["unshare", *rights, "--mount", "sh", "-c"]
    target.mkdir(exist_ok=True)
    begin = [*inside, script, "sh", str(source), str(target)]
    if subprocess.run([*begin, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    return begin


def heed_permissions() -> None:
    """Give up root's right to ignore permissions, in a child process before it begins its program."""
    if os.geteuid() == 0:
        system = ctypes.CDLL(None, use_errno=True)
        for right in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if system.prctl(_PR_CAPBSET_DROP, right, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "a capability could not be dropped")


def run_commands(
    commands: Sequence[Sequence[str]], *, begin: Sequence[str] = (), heeding: bool = False
) -> list[Result]:
    """Run ``headwater`` with each of these arguments, in processes of one that ``begin`` starts."""
    done = subprocess.run(
        [*begin, sys.executable, "-c", _PROGRAM],
        input=json.dumps([[*words] for words in commands]),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        preexec_fn=heed_permissions if heeding else None,
    )
    assert done.returncode == 0, done.stderr
    return [Result(*json.loads(line)) for line in done.stdout.splitlines()]


def run_program(program: str, *arguments: str, begin: Sequence[str] = ()) -> str:
    """Run a Python program in a process that ``begin`` starts, and return what it printed, errors included."""
    done = subprocess.run(
        [*begin, sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
