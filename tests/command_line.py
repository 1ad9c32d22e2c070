"""Runs the command line as a user does, without input."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout

from headwater.cli.main import main


def in_process(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run ``headwater …`` in a process. Returns its status, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def in_thread(arguments: Sequence[str], *, answer: str = "") -> tuple[int, str, str]:
    """Run ``headwater …`` in a thread, with ``answer`` on its standard input. Returns its status, standard output and
    standard error."""

    def run() -> int:
        try:
            main([*arguments])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    printed, complaint, read = io.StringIO(), io.StringIO(), sys.stdin
    with ThreadPoolExecutor(1) as thread, redirect_stdout(printed), redirect_stderr(complaint):
        sys.stdin = io.StringIO(answer)
        try:
            status = thread.submit(run).result(60)
        finally:
            sys.stdin = read
    return status, printed.getvalue(), complaint.getvalue()
