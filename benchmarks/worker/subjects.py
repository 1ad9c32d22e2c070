"""The measured programs: Headwater's worker, its peers, and the raw loop that all results are ratios to.

Each measurement is a separate process on the client's core. A peer runs in an environment below
build/bench-worker, with the versions listed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.machine import ROOT
from benchmarks.stores import Store, cores, on_cores

ENVIRONMENTS: Final = ROOT / "build" / "bench-worker"
PROGRAMS: Final = Path(__file__).parent / "peers"

HANGS_SECONDS: Final = 900.0


class Peer(NamedTuple):
    """A library and its requirements; ``share`` is the fraction of the messages that it is measured with."""

    name: str
    requirements: tuple[str, ...]
    words: tuple[str, ...] = ()
    share: float = 0.1

    @property
    def title(self) -> str:
        """Its name in the tables."""
        return " ".join((self.name, *self.words))


FASTSTREAM: Final = ("faststream[redis]==0.7.8", "redis==8.1.0")

PEERS: Final = (
    Peer("faststream", FASTSTREAM, ("single",)),
    Peer("faststream", FASTSTREAM, ("batch",), share=1.0),
    Peer("taskiq", ("taskiq-redis==1.2.4", "taskiq==0.13.0", "redis==8.1.0")),
    Peer("streaq", ("streaq==7.2.0", "coredis==6.9.0")),
    Peer("arq", ("arq==0.28.0", "redis==5.3.1")),
    Peer("dramatiq", ("dramatiq[redis]==2.2.1", "redis==8.1.0")),
    Peer("celery", ("celery[redis]==5.7.0", "redis==8.1.0")),
)

RAW: Final = "raw loop"


class Sample(NamedTuple):
    """One measurement."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Processor time of the worker process per message, of all its threads."""
        return self.cpu_seconds / self.messages * 1e6


class Failed(Exception):
    """A measured process failed or could not be installed; the message says why."""


def environment(peer: Peer) -> Path:
    """Return the peer's Python; install the peer the first time."""
    directory = ENVIRONMENTS / peer.name
    python = directory / "bin" / "python"
    stamp = directory / "requirements"
    wanted = "\n".join(peer.requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        _carried_out([sys.executable, "-m", "venv", str(directory)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _carried_out([*pip, *peer.requirements])
        stamp.write_text(wanted)
    return python


def _carried_out(words: list[str], **more: Any) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS, **more
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[1:4]} did not end within {HANGS_SECONDS:.0f} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(words[1:4])}: {done.stderr.strip()[-300:]}")
    said: str = done.stdout
    return said


def measured(words: list[str], store: Store) -> Sample:
    """Run a program of this package on the client's core with an empty store; return its measurement."""
    store.empty()
    with on_cores({cores()[1]}):
        said = _carried_out(words, cwd=ROOT, env=_surroundings())
    found = json.loads(said.splitlines()[-1])
    return Sample(found["messages"], found["seconds"], found["cpu_seconds"])


def _surroundings() -> dict[str, str]:
    """Return the environment of a program: it imports `tally` and Headwater from this tree, and inherits nothing."""
    return {"PYTHONPATH": f"{ROOT}:{ROOT}/src", "PATH": "/usr/bin:/bin"}


def url(store: Store) -> str:
    return f"redis://{store.host}:{store.port}"


def ours(store: Store, messages: int, kind: str) -> Sample:
    """Measure Headwater's worker."""
    words = [sys.executable, "-m", "benchmarks.worker.ours", url(store), str(messages), kind]
    return measured(words, store)


def raw(store: Store, messages: int, kind: str) -> Sample:
    """Measure the raw loop."""
    words = [sys.executable, "-m", "benchmarks.worker.raw", url(store), str(messages), kind]
    return measured(words, store)


def peer(store: Store, messages: int, one: Peer) -> Sample:
    """Measure a peer."""
    program = str(PROGRAMS / f"{one.name}_program.py")
    return measured([str(environment(one)), program, url(store), str(messages), *one.words], store)
