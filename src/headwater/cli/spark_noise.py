"""Hides what Spark prints while it starts.

The JVM writes these lines to the process's standard error before its log level can be set, so standard
error becomes a pipe while Spark runs. A thread copies every other line to the real one at once.
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
"""Lines of Spark 4.0 and Java 17 at the start of every session. They say nothing about the run."""

_READ_BYTES = 65_536
_MOST_OF_A_LINE = 1_000_000
"""A longer line is copied in pieces."""
_PATIENCE_SECONDS = 5.0
"""For a standard error that takes nothing, such as a pager that was stopped."""
_STDERR = 2


@contextmanager
def quiet_start(*, verbose: bool) -> Iterator[None]:
    """Copy standard error without Spark's startup lines within the block; with ``verbose``, change nothing."""
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
        # What was written so far is shown first. The JVM has the pipe until it ends, so the thread goes on.
        os.write(_STDERR, b"\n" + end)
        copied.wait(_PATIENCE_SECONDS)
        os.dup2(real, _STDERR)


def _copy(source: int, target: int, end: bytes, copied: threading.Event) -> None:
    """Copy lines, but not empty ones, until no process has the pipe open for writing; ``copied`` is set at
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
    """Write all of ``data``; if the reader of standard error is gone, drop it, so that Spark does not wait for
    a full pipe."""
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        return
