"""``python -m benchmarks.storage.replayed execute KIND ENTRIES DIRECTORY`` executes commands in process and writes
their journal to DIRECTORY/full, and to DIRECTORY/base that of the commands that only prepare them.
``… replay DIRECTORY`` opens a directory. Each prints a line of JSON with the processor time.

    xadd     adds entries of five fields
    consume  delivers entries to ten groups and acknowledges them, a hundred at a time
    xdel     deletes half of the entries, one at a time, in random order

Rule 1. The collector of reference cycles is off while commands are executed, as it is in a replay.
Rule 2. The executing process ends without closing the store: a clean stop may replace the journal by an image,
        and then nothing would be replayed.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.load import request
from benchmarks.workloads import FIELDS_5, additions, digits
from headwater.common.collector import collector_off
from headwater.config.config import Config
from headwater.server.opening import open_node
from headwater.server.turn.node import Node

KEY: Final = b"bench:0"
BATCH: Final = 100
KINDS: Final = ("xadd", "consume", "xdel")

GROUPS: Final = 10
"""The groups that read the same entries: adding these costs more than reading them, and is subtracted."""

PERCENTAGE: Final = "auto_aof_rewrite_percentage"
"""The setting that begins a checkpoint; 0 begins none. A store without it has no checkpoints."""


class Executed(NamedTuple):
    """The prepared requests and the measured ones, in batches, and how many operations the latter are."""

    prepare: Iterable[bytes]
    measure: list[bytes]
    operations: int


def batched(requests: list[bytes]) -> list[bytes]:
    """Return the requests, joined in batches of `BATCH`."""
    return [b"".join(requests[at : at + BATCH]) for at in range(0, len(requests), BATCH)]


def entries_with_ids(entries: int) -> Iterator[bytes]:
    """Yield batches that add entries with the ids 1-1 on."""
    chance = random.Random(1)
    words = [digits(FIELDS_5, chance) for _ in range(BATCH)]
    for first in range(1, entries + 1, BATCH):
        yield b"".join(
            request(b"XADD", KEY, b"%d-1" % number, *words[number % BATCH])
            for number in range(first, min(first + BATCH, entries + 1))
        )


def executed(kind: str, entries: int) -> Executed:
    """Return what a kind executes."""
    if kind == "xadd":
        requests = additions(FIELDS_5)
        many = (requests * (entries // len(requests) + 1))[:entries]
        return Executed((), batched(many), entries)
    if kind == "consume":
        each = entries // GROUPS
        return Executed(with_groups(each), list(consumption(each)), each * GROUPS)
    assert kind == "xdel", f"no such kind: {kind}"
    chosen = random.Random(2).sample(range(1, entries + 1), entries // 2)
    requests = [request(b"XDEL", KEY, b"%d-1" % number) for number in chosen]
    return Executed(entries_with_ids(entries), batched(requests), len(requests))


def with_groups(entries: int) -> Iterator[bytes]:
    """Yield batches that add entries and make groups that have read none of them."""
    yield from entries_with_ids(entries)
    for number in range(GROUPS):
        yield request(b"XGROUP", b"CREATE", KEY, b"g%d" % number, b"0")


def consumption(entries: int) -> Iterator[bytes]:
    """Yield pairs of a read and the acknowledgement of what it delivers."""
    for number in range(GROUPS):
        group = b"g%d" % number
        read = request(
            b"XREADGROUP", b"GROUP", group, b"c", b"COUNT", b"%d" % BATCH, b"STREAMS", KEY, b">"
        )
        for first in range(1, entries + 1, BATCH):
            ids = (b"%d-1" % at for at in range(first, min(first + BATCH, entries + 1)))
            yield read + request(b"XACK", KEY, group, *ids)


def config(directory: Path) -> Config:
    """Return the settings: a journal that is not flushed, and no checkpoints."""
    words: dict[str, Any] = {"port": 0, "dir": str(directory), "appendfsync": "no"}
    if any(field.name == PERCENTAGE for field in fields(Config)):
        words[PERCENTAGE] = 0
    return Config(**words)


def execute(kind: str, entries: int, directory: Path) -> dict[str, Any]:
    """Execute a kind, and leave the two directories. Return the operations, the processor time of the measured
    part and what is left in the store."""
    full = directory / "full"
    node = open_node(config(full))
    session = node.connect(kind="embedded", address="")
    work = executed(kind, entries)
    for data in work.prepare:
        check(node.exchange(session, data))
    shutil.copytree(full, directory / "base")
    gc.collect()
    with collector_off():
        began = time.process_time()
        replies = [node.exchange(session, data) for data in work.measure]
        spent = time.process_time() - began
    for reply in replies:
        check(reply)
    return {"operations": work.operations, "cpu_seconds": spent, "left": left_in(node)}


def replay(directory: Path) -> dict[str, Any]:
    """Open a directory. Return the processor time and what is in the store."""
    gc.collect()
    began = time.process_time()
    node = open_node(config(directory))
    spent = time.process_time() - began
    return {"cpu_seconds": spent, "left": left_in(node)}


def left_in(node: Node) -> str:
    """Return the replies that show the length of the stream and what its groups have read and not
    acknowledged; an error if there is no stream."""
    session = node.connect(kind="embedded", address="")
    words = (request(b"XLEN", KEY), request(b"XINFO", b"GROUPS", KEY))
    return b"".join(node.exchange(session, data) for data in words).decode()


def check(reply: bytes) -> None:
    """Raise an error for an error reply."""
    assert not reply.startswith(b"-"), reply[:200]
    assert b"\n-" not in reply, reply[:200]


def main() -> int:
    """Execute or replay, and print."""
    word, *rest = sys.argv[1:]
    if word == "execute":
        found = execute(rest[0], int(rest[1]), Path(rest[2]))
    else:
        found = replay(Path(rest[0]))
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # see rule 2


if __name__ == "__main__":
    sys.exit(main())
