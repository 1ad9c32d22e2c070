"""The load generator: a small C program (load/), compiled on first use and run on its own core.

It sends prepared requests over several connections and finds the end of each reply without building
objects, so it needs little processor time compared with the server on the other core. How much it needs is
part of every measurement (`Sample.client_busy`). An error reply ends it, and raises `LoadFailed`.
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

TIMEOUT_SECONDS: Final = 600.0
"""How long the program may run in total. It is long because the program also adds ten million entries."""


class Sample(NamedTuple):
    """One measurement: operations, the time that they took, percentiles of the reply times, and the processor
    time of the server and of the client."""

    operations: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_cpu_seconds: float
    client_cpu_seconds: float

    @property
    def rate(self) -> float:
        """The operations per second."""
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
    """The program could not be compiled, ended with an error, or did not end in time. The message has its
    error output."""


def request(*words: bytes) -> bytes:
    """Return the bytes of one request."""
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
    """Put a server under load from ``core`` and return the measurement; load/load.c describes the modes.

    With a ``pid`` of 0, the server's processor time is not measured. Raises `LoadFailed`.
    """
    output = run_program(mode, host, port, pid, *arguments, core=core, given=b"".join(requests))
    return Sample(**json.loads(output))


def run_program(*words: object, core: int | None = None, given: bytes = b"") -> str:
    """Run the program with ``given`` as standard input and return its output. Raises `LoadFailed`."""
    command = [str(program()), *map(str, words)]
    mine = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})  # the child inherits it
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(
            f"{_shown(command)}: it did not end within {TIMEOUT_SECONDS:.0f} seconds"
        ) from None
    finally:
        os.sched_setaffinity(0, mine)
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip()
        raise LoadFailed(f"{_shown(command)}: {errors or f'status {done.returncode}'}")
    return done.stdout.decode()


def _shown(command: list[str]) -> str:
    return f"load {' '.join(command[1:])[:200]}"


@cache
def program() -> Path:
    """Return the path of the program, compiled from the current sources. Raises `LoadFailed`."""
    files = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    binary = BUILT / f"load-{digest}"
    if binary.exists():
        return binary
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("no C compiler (cc) was found; on Debian and Ubuntu: apt-get install gcc")
    BUILT.mkdir(parents=True, exist_ok=True)
    temporary = binary.with_suffix(f".{os.getpid()}")
    sources = [str(file) for file in files if file.suffix == ".c"]
    words = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(temporary), *sources]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadFailed(f"{' '.join(words)}:\n{done.stderr}")
    temporary.replace(binary)
    return binary
