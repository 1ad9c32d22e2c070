"""The start of the command line: processor time of a command, divided by that of ``python -c pass``.

Processor time, because the rest is waiting for the machine. The repetitions of both
alternate.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from benchmarks.rows import OURS, OWN_VALUE, TIMES, Row, Target
from benchmarks.selection import Selection
from headwater.client.sync.connect import connect
from headwater.testing.server import server_process

REPETITIONS: Final = 15

HEADWATER: Final = (sys.executable, "-m", "headwater")

COMMANDS: Final = {
    "headwater --help": (("--help",), Target(6.0, 5.0, by=OWN_VALUE)),
    "headwater pending list": (("pending", "list", "orders"), Target(10.0, 7.0, by=OWN_VALUE)),
}


def rows(selection: Selection) -> Iterator[Row]:
    """Yield a row for each command. Its additional measurement ``pass_s`` is that of ``python -c pass``."""
    if not any(map(selection.wants, COMMANDS)):
        return
    with server_process("--appendonly", "no") as server:
        with connect(server.url) as client:
            client.xgroup_create("orders", "billing", mkstream=True)
            for _ in range(100):
                client.xadd("orders", {"item": "tea"})
            client.xreadgroup("billing", "web-1", {"orders": ">"})
        for name, (words, target) in COMMANDS.items():
            if not selection.wants(name):
                continue
            row = Row("command-line", name, TIMES, better="less", target=target)
            command = (*HEADWATER, *words, *(() if "--help" in words else ("--url", server.url)))
            for _ in range(selection.rounds):
                ours = nothing = float("inf")
                for _ in range(REPETITIONS):
                    ours = min(ours, _seconds(command))
                    nothing = min(nothing, _seconds((sys.executable, "-c", "pass")))
                row.of(OURS).add(ours / nothing, pass_s=nothing)
            yield row


def _seconds(command: tuple[str, ...]) -> float:
    """Run a command; return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
