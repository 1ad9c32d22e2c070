"""Hides the lines that Spark prints while it starts.

The JVM writes these lines to the process's standard error before its log level can be set, so standard error is
replaced by a pipe while Spark runs. A thread immediately copies every other line to the real standard error.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NOISE = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|Using Spark's default log4j profile: "
    rb"|Setting (?:default|Spark) log level to "
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|.* WARN NativeCodeLoader: Unable to load native-hadoop library"
    rb"|.* WARN Utils: (?:Your hostname, |Set SPARK_LOCAL_IP )"
)
"""Lines that Spark 4.0 and Java 17 print at the start of every session. They do not concern the run."""

_READ_BYTES = 65_536
_MOST_OF_A_LINE = 1_000_000
"""Maximum length in bytes of a line that is copied as a whole. A longer line is copied in pieces."""
_PATIENCE_SECONDS = 5.0
"""Maximum time to wait while standard error does not accept data, as with a stopped pager, in seconds."""
_STDERR = 2


@contextmanager
def quiet_start(*, verbose: bool) -> Iterator[None]:
    """Hide Spark's startup lines on standard error within the block. With ``verbose``, change nothing."""
    if verbose:
        yield
        return
    sys.stderr.flush()
    real = os.dup(_STDERR)
    reading, writing = os.pipe()
    end = b"%s\n" % os.urandom(16).hex().encode()
    copied = threading.Event()
    threading.Thread(target=_copy, args=(reading, real, end, copied), daemon=True).start()
    os.dup2(writing, _STDERR)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        # Wait until everything written so far is shown. The thread continues, because the JVM keeps the pipe.
        os.write(_STDERR, b"\n" + end)
        copied.wait(_PATIENCE_SECONDS)
        os.dup2(real, _STDERR)


def _copy(source: int, target: int, end: bytes, copied: threading.Event) -> None:
    """Copy lines that are neither empty nor noise, until no process has the pipe open for writing. Set ``copied`` at
    the line ``end``."""
    rest = b""
    while chunk := os.read(source, _READ_BYTES):
        *lines, rest = (rest + chunk).splitlines(keepends=True)
        if rest.endswith(b"\n") or len(rest) > _MOST_OF_A_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if line == end:
                copied.set()
            elif line != b"\n" and not _NOISE.match(line):
                _write(target, line)
    _write(target, rest)


def _write(target: int, data: bytes) -> None:
    """Write all of ``data``. If the reader of standard error is gone, drop the data, so that Spark does not block on
    a full pipe."""
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        return
