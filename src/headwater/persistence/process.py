"""Starts the helper process of a checkpoint (helper.py) and waits for its report.

It does not use `multiprocessing`: a fork of a server with gigabytes of state costs a copy of its page tables
and, as the server continues to write, of its pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headwater.persistence.order import BuiltImage, CheckpointFailed, CheckpointOrder, decode_report

_ROOT = str(Path(__file__).parent.parent.parent)
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from headwater.persistence.helper import main; sys.exit(main())"
)
"""Program of the helper. ``-m`` is not used, because the directory of the package may not be on a new interpreter's
path. The program appends that directory, because other packages in it must not hide the standard library."""

_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]*(\.exe)?", re.IGNORECASE)


def can_start() -> bool:
    """Return whether a helper can be started: `sys.executable` is a Python interpreter, and not a program that
    contains one (a frozen application, uwsgi)."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return False
    return _PYTHON.fullmatch(Path(sys.executable).name) is not None


class HelperProcess:
    """A running helper. The constructor starts it, and raises `OSError` if that fails."""

    def __init__(self, order: CheckpointOrder) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the helper has ended; its output has the reason
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()

    def wait(self) -> BuiltImage:
        """Wait for the report and return the image. Raises `CheckpointFailed`."""
        assert self._process.stdout is not None
        lines = self._process.stdout.read().splitlines()
        status = self._process.wait()
        self._close()
        if status < 0:
            raise CheckpointFailed(f"the helper process was ended by signal {-status}")
        if not lines:
            raise CheckpointFailed(f"the helper process ended with status {status}")
        return decode_report(lines)

    def end(self) -> None:
        """End the helper, even while it works. `wait` then fails."""
        with suppress(OSError):
            self._process.kill()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
