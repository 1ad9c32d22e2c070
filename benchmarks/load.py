"""The load generator: a small C program (load/), compiled on first use and run on its own core.

It sends prepared requests over several connections, and reads only as much of a reply as it needs to
recognise one. So it costs little compared with the server on the other core; how much is part of every
measurement (`Sample.client_busy`). An error reply ends it: `LoadFailed`.
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
"""How long the program may run in total. It is long because it also adds ten million entries."""


class Sample(NamedTuple):
    """One measurement: operations, the seconds that they took, and reply times in microseconds."""

    operations: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_cpu_seconds: float
    client_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's processor time per operation, of all its threads."""
        return self.server_cpu_seconds / self.operations * 1e6

    @property
    def client_busy(self) -> float:
        """The share of the time in which the client was busy. Near 1, the client is the bottleneck."""
        return self.client_cpu_seconds / self.seconds


class LoadFailed(Exception):
    """The program could not be compiled, or ended with an error; the message is its output."""


def request(*words: bytes) -> bytes:
    """Encode one request."""
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
    """Put a server under load from ``core``; load.c describes the modes.

    With a ``pid`` of 0, the server's processor time is not measured.
    """
    said = run_program(mode, host, port, pid, *arguments, core=core, given=b"".join(requests))
    return Sample(**json.loads(said))


def run_program(*words: object, core: int | None = None, given: bytes = b"") -> str:
    """Run the program and return its output. Raises `LoadFailed` with its error output."""
    command = [str(program()), *map(str, words)]
    mine = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})  # the child inherits it
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=HANGS_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(
            f"{_shown(command)}: it did not end within {HANGS_SECONDS:.0f} seconds"
        ) from None
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
    """Return the program, compiled from the current sources."""
    files = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    made = BUILT / f"load-{digest}"
    if made.exists():
        return made
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("no C compiler (cc) was found; on Debian and Ubuntu: apt-get install gcc")
    BUILT.mkdir(parents=True, exist_ok=True)
    temporary = made.with_suffix(f".{os.getpid()}")
    sources = [str(file) for file in files if file.suffix == ".c"]
    words = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(temporary), *sources]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadFailed(f"{' '.join(words)}:\n{done.stderr}")
    temporary.replace(made)
    return made
