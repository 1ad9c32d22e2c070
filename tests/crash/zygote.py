"""A process that forks servers, which are then killed at a chosen system call: starting each from nothing would take
ten times as long.

    python -m tests.crash.zygote        with LD_PRELOAD: see call_campaign.py

reads orders from standard input, a line of JSON each, and starts one server at a time. It prints ``ready`` when the
server is, and ``ended STATUS`` when it has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import NamedTuple

from headwater.config.config import Config
from headwater.server.running import run


class Order(NamedTuple):
    """A server on ``socket`` with the data in ``directory``. It is killed before its system call number ``calls``,
    counted from the start if ``at_start``, otherwise from when it is ready; 0: never. ``helper_calls`` counts those of
    its helper processes. ``rewrite_bytes`` is auto-aof-rewrite-min-size, 0 for no automatic checkpoints."""

    directory: str
    socket: str
    calls: int
    at_start: bool
    helper_calls: int
    rewrite_bytes: int


def serve(order: Order) -> None:
    """Run the server in this process, which was forked for it."""
    library = ctypes.CDLL(None)
    if order.helper_calls:
        os.environ["HEADWATER_KILL_HELPER_AT"] = str(order.helper_calls)
    config = Config(
        dir=order.directory,
        bind=(),
        port=0,
        unixsocket=order.socket,
        appendfsync="always",
        auto_aof_rewrite_percentage=1 if order.rewrite_bytes else 0,
        auto_aof_rewrite_min_size=order.rewrite_bytes,
    )
    if order.at_start:
        library.kill_at_arm(ctypes.c_long(order.calls))

    def ready(_line: str) -> None:
        os.write(1, b"ready\n")
        if not order.at_start:
            library.kill_at_arm(ctypes.c_long(order.calls))

    run(config, on_ready=ready)


def main() -> None:
    """Carry out all orders."""
    for line in sys.stdin:
        order = Order(*json.loads(line))
        child = os.fork()
        if child == 0:
            try:
                serve(order)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"ended {status}\n".encode())


if __name__ == "__main__":
    main()
