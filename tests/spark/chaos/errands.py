"""What a driver is told when it is started to be killed: one JSON object on its command line."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

Victim = Literal["jvm", "python", "both"]
"""A driver is two processes: the JVM, which runs the query, and the Python that started it."""

VICTIMS: tuple[Victim, ...] = get_args(Victim)

STREAM = "s"

ENTRIES_A_BATCH = 200
"""Few, so that a second of a query's life has a batch's every step in it, and more than once."""


@dataclass(frozen=True)
class Errand:
    """Follow the stream `STREAM` at ``url`` into a sink in ``directory``, by one of ways.py's ways.

    With ``die_after`` the driver kills ``victim`` when its sink has that batch, or the next one that
    is not empty, before Spark has logged that it is done.
    """

    url: str
    directory: str
    way: str
    master: str = "local[2,4]"
    conf: dict[str, str] = field(default_factory=dict)
    die_after: int | None = None
    victim: Victim = "jvm"

    @property
    def place(self) -> Path:
        return Path(self.directory)

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Errand:
        return cls(**json.loads(text))


def strike(victim: Victim, *, jvm: int, python: int) -> None:
    """SIGKILL to ``victim``; the caller may be one of the two."""
    if victim in {"jvm", "both"}:
        os.kill(jvm, signal.SIGKILL)
    if victim in {"python", "both"}:
        os.kill(python, signal.SIGKILL)
