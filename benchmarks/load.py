"""The load generator: a small C program (load/), compiled on first use, run on a core of its own.

It keeps connections busy with requests that stand ready, and looks at no more of an answer than it
must to know that it is one: beside a server on another core its own work hardly shows, and what it is
stands beside every figure (`Sample.client_busy`). An error among the answers ends it: `LoadFailed`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.machine import ROOT
from headwater.resp.arguments import Arguments

SOURCES: Final = Path(__file__).parent / "load"
BUILT: Final = ROOT / "build" / "load"

HANGS_SECONDS: Final = 600.0
"""How long the program may take beyond the seconds that it measures: ten million entries are added."""


class Sample(NamedTuple):
    """One measurement: operations in so many seconds, and times to an answer in microseconds."""

    operations: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_cpu_seconds: float
    client_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's processor time an operation, all its threads."""
        return self.server_cpu_seconds / self.operations * 1e6

    @property
    def client_busy(self) -> float:
        """Part of the time in which the client's core was busy; near 1 it is what was measured."""
        return self.client_cpu_seconds / self.seconds


class LoadFailed(Exception):
    """The program could not be compiled, or ended with an error; the text is what it said."""


def request(*words: bytes) -> bytes:
    """One request, encoded."""
    return bytes(Arguments.of(*words).buffer)


def run(
    mode: str,
    host: str,
    port: int,
    pid: int,
    *arguments: object,
    core: int | None = None,
    requests: Iterable[bytes] = (),
) -> Sample:
    """Put the server with this pid under load from ``core``; the modes stand at the head of load.c.

    A pid of 0 leaves the server's processor time out.
    """
    said = run_program(mode, host, port, pid, *arguments, core=core, given=b"".join(requests))
    return Sample(**json.loads(said))


def run_program(*words: object, core: int | None = None, given: bytes = b"") -> str:
    """What the program prints. Raises `LoadFailed` with what it complains of."""
    command = [str(program()), *map(str, words)]
    mine = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})  # the child inherits it
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=HANGS_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{_shown(command)}: no end after {HANGS_SECONDS:.0f} seconds") from None
    finally:
        os.sched_setaffinity(0, mine)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise LoadFailed(f"{_shown(command)}: {said or f'status {done.returncode}'}")
    return done.stdout.decode()


def _shown(command: list[str]) -> str:
    return f"load {' '.join(command[1:])[:200]}"


@cache
def program() -> Path:
    """The compiled program, of the sources as they are."""
    files = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    made = BUILT / f"load-{digest}"
    if made.exists():
        return made
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("there is no C compiler (cc); on Debian and Ubuntu: apt-get install gcc")
    BUILT.mkdir(parents=True, exist_ok=True)
    beside = made.with_suffix(f".{os.getpid()}")
    sources = [str(file) for file in files if file.suffix == ".c"]
    words = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(beside), *sources]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadFailed(f"{' '.join(words)}:\n{done.stderr}")
    beside.replace(made)
    return made
