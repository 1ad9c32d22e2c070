"""The parameters of a driver that will be killed: one JSON object on its command line."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

Victim = Literal["jvm", "python", "both"]
"""A driver has two processes: the JVM, which runs the query, and the Python that started it."""

VICTIMS: tuple[Victim, ...] = get_args(Victim)

STREAM = "s"

ENTRIES_A_BATCH = 200
"""Few, so that one second of a query includes every step of a batch more than once."""


@dataclass(frozen=True)
class DriverOptions:
    """Follow the stream `STREAM` at ``url`` into a sink in ``directory``, in a way of ways.py.

    With ``die_after`` the driver kills ``victim`` after its sink has that batch, or the next one that is
    not empty, and before Spark has logged its end.
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
    def parse(cls, text: str) -> DriverOptions:
        return cls(**json.loads(text))


def strike(victim: Victim, *, jvm: int, python: int) -> None:
    """Send SIGKILL to ``victim``, which may include the caller."""
    if victim in {"jvm", "both"}:
        os.kill(jvm, signal.SIGKILL)
    if victim in {"python", "both"}:
        os.kill(python, signal.SIGKILL)
