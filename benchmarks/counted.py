"""``python -m benchmarks.counted DIRECTORY ROW``: runs a hot command in a process whose instructions valgrind counts, for
`benchmarks.instructions`. Prints nothing.

The row has its own store below DIRECTORY, with a journal. Request bytes go into the node and reply bytes
come out, so neither sockets nor a client library are counted. A row runs a number of steps, a mark, twice
as many steps, and a mark. The difference between the two parts is the cost of that number of steps;
what both parts have in common cancels out.

A mark is a call of getsid(2). Neither Python nor Headwater calls it, and valgrind writes its counts
whenever a program does (``--dump-before=getsid``).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from headwater.server.session.session import Session
    from headwater.server.turn.node import Node

MARK: Final = "getsid"
OF_ONE: Final = 1000
OF_MANY: Final = 100
"""Number of steps in the first part, for rows with one operation per step and for those with a hundred."""

PIPELINE: Final = 16
BATCH: Final = 100
KEYS: Final = 1000

SMALL: Final = (b"item", b"tea-green-0001", b"price", b"1234")
LARGE: Final = (
    b"customer", b"c-123456780000", b"item", b"tea-green-0001", b"price", b"1234", b"address",
    b"12 Long Lane, Upper Springwater, SW 1234", b"note",
    b"leave it at the neighbour's door, please ring 12 x",
)  # fmt: skip

Requests = Callable[[int], bytes]


class Counted(NamedTuple):
    """One row: ``step`` returns the requests of a step by its number, ``operations`` is their number of
    operations, ``before`` returns the requests that fill the store."""

    name: str
    operations: int
    steps: int
    step: Requests
    before: Callable[[], list[bytes]] = list


def done(steps: int) -> int:
    """Return the total number of steps of a row with ``steps`` in its first part."""
    return warm(steps) + 3 * steps


def warm(steps: int) -> int:
    """Return the number of warm-up steps, after which caches are filled and keys exist."""
    return steps // 5


ENTRIES: Final = done(OF_ONE)
MANY_ENTRIES: Final = done(OF_MANY) * BATCH


def request(*words: bytes | int) -> bytes:
    """Encode one request. Not with Headwater's encoder, which may differ in the other commit."""
    texts = [word if isinstance(word, bytes) else b"%d" % word for word in words]
    lines = [b"$%d\r\n%s\r\n" % (len(text), text) for text in texts]
    return b"*%d\r\n%s" % (len(texts), b"".join(lines))


def adding(fields: tuple[bytes, ...], *, times: int = 1, keys: int = 1) -> Requests:
    """Return a step of ``times`` XADDs, to ``keys`` keys in turn."""

    def step(number: int) -> bytes:
        first = number * times
        return b"".join(
            request(b"XADD", b"s:%d" % (at % keys), b"*", *fields)
            for at in range(first, first + times)
        )

    return step


def setting(*, keys: int) -> Requests:
    """Return a step of a pipeline of SETs of numbers, to ``keys`` keys in turn."""

    def step(number: int) -> bytes:
        first = number * PIPELINE
        return b"".join(
            request(b"SET", b"s:%d" % (at % keys), at) for at in range(first, first + PIPELINE)
        )

    return step


def filled(entries: int) -> list[bytes]:
    """Return requests that add entries ``1-1``, ``2-1`` … of five fields, and create a group at 0."""
    made = [
        b"".join(request(b"XADD", b"s", b"%d-1" % at, *LARGE) for at in range(first, first + BATCH))
        for first in range(1, entries, BATCH)
    ]
    return [*made, request(b"XGROUP", b"CREATE", b"s", b"g", 0)]


def delivered(entries: int) -> list[bytes]:
    """Return the same, and a request that makes all entries pending for the consumer ``old``."""
    read = request(b"XREADGROUP", b"GROUP", b"g", b"old", b"COUNT", entries, b"STREAMS", b"s", b">")
    return [*filled(entries), read]


def many_read(number: int) -> bytes:
    return request(b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", BATCH, b"STREAMS", b"s", b">")


def one_read(number: int) -> bytes:
    return request(b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", 1, b"STREAMS", b"s", b">")


def many_claimed(number: int) -> bytes:
    """Read new entries, with CLAIM looking for idle ones first, as a worker does."""
    return request(
        b"XREADGROUP", b"GROUP", b"g", b"c", b"CLAIM", 60_000, b"COUNT", BATCH,
        b"STREAMS", b"s", b">",
    )  # fmt: skip


def acknowledged(count: int) -> Requests:
    """Return a step that acknowledges the oldest ``count`` pending entries."""

    def step(number: int) -> bytes:
        first = 1 + number * count
        return request(b"XACK", b"s", b"g", *(b"%d-1" % at for at in range(first, first + count)))

    return step


def settled(number: int) -> bytes:
    first = 1 + number * BATCH
    ids = [b"%d-1" % at for at in range(first, first + BATCH)]
    return request(b"XSETTLE", b"s", b"g", b"old", b"ACK", b"IDS", BATCH, *ids)


def ranged(number: int) -> bytes:
    first = 1 + number * 97 % (ENTRIES - BATCH)
    return request(b"XRANGE", b"s", b"%d-1" % first, b"+", b"COUNT", BATCH)


def polled(number: int) -> bytes:
    first = number * 97 % (ENTRIES - BATCH)
    return request(b"XREAD", b"COUNT", BATCH, b"STREAMS", b"s", b"%d-1" % first)


def taken_over(number: int) -> bytes:
    """Claim all pending entries, a hundred at a time, from one consumer to the other and back."""
    turns, at = divmod(number * BATCH, ENTRIES)
    start = b"%d-1" % (1 + at)
    owner = (b"new", b"old")[turns % 2]
    return request(b"XAUTOCLAIM", b"s", b"g", owner, 0, start, b"COUNT", BATCH)


ROWS: Final = (
    Counted("XADD", 1, OF_ONE, adding(SMALL)),
    Counted("XADD, pipeline of 16", PIPELINE, OF_ONE, adding(SMALL, times=PIPELINE)),
    Counted("XADD of 150 B, pipeline of 16", PIPELINE, OF_ONE, adding(LARGE, times=PIPELINE)),
    Counted(
        "XADD to 1000 keys, pipeline of 16",
        PIPELINE,
        OF_ONE,
        adding(SMALL, times=PIPELINE, keys=KEYS),
    ),
    Counted("XRANGE COUNT 100", 1, OF_ONE, ranged, lambda: filled(ENTRIES)),
    Counted("XREAD COUNT 100", 1, OF_ONE, polled, lambda: filled(ENTRIES)),
    Counted("XREADGROUP COUNT 1", 1, OF_ONE, one_read, lambda: filled(ENTRIES)),
    Counted("XREADGROUP COUNT 100", 1, OF_MANY, many_read, lambda: filled(MANY_ENTRIES)),
    Counted("XREADGROUP CLAIM COUNT 100", 1, OF_MANY, many_claimed, lambda: filled(MANY_ENTRIES)),
    Counted("XACK of 1", 1, OF_ONE, acknowledged(1), lambda: delivered(ENTRIES)),
    Counted("XACK of 100", 1, OF_MANY, acknowledged(BATCH), lambda: delivered(MANY_ENTRIES)),
    Counted("XSETTLE of 100", 1, OF_MANY, settled, lambda: delivered(MANY_ENTRIES)),
    Counted("XAUTOCLAIM COUNT 100", 1, OF_ONE, taken_over, lambda: delivered(ENTRIES)),
    Counted("SET of 1000 keys, pipeline of 16", PIPELINE, OF_ONE, setting(keys=KEYS)),
    Counted("SET of new keys, pipeline of 16", PIPELINE, OF_ONE, setting(keys=ENTRIES * PIPELINE)),
)


class Refused(Exception):
    """The reply to a row's command was an error, so the count would not be the command's."""


def configuration(**values: object) -> Any:
    """Return a `Config`. In another commit the class may be in its former module."""
    place = (
        "headwater.config.config" if find_spec("headwater.config") else "headwater.server.config"
    )
    return import_module(place).Config(**values)


def run(row: Counted, directory: Path) -> None:
    """Fill a store, then run the counted steps between marks. Raises `Refused`."""
    from headwater.server.opening import open_node

    directory.mkdir()
    # No fsync, so nothing waits for a disk. No compression, because another thread does it at a
    # random time.
    node = open_node(
        configuration(port=0, dir=str(directory), appendfsync="no", stream_compression="none")
    )
    session = node.connect(kind="embedded", address="")
    try:
        for data in row.before():
            answer(node, session, data)
        steps = [row.step(number) for number in range(done(row.steps))]
        ahead = warm(row.steps)
        for data in steps[:ahead]:
            answer(node, session, data)
        counted, last = steps[ahead:], b""
        gc.collect()
        gc.freeze()  # from now on a collection visits only objects that the steps make
        exchange = node.exchange
        await_second()
        os.getsid(0)
        for data in counted[: row.steps]:
            exchange(session, data)
        os.getsid(0)
        for data in counted[row.steps :]:
            last = exchange(session, data)
        os.getsid(0)
        gc.unfreeze()
        check(last, counted[-1])
    finally:
        node.close()


def await_second() -> None:
    """Read the clock until a second begins. What a command costs depends on it: entries that one consumer
    claimed in the same millisecond are stored together. Without this, a single look at the clock more
    while a store is opened moved the count of XAUTOCLAIM by two percent."""
    second = int(time.time())
    while int(time.time()) == second:
        pass


def answer(node: Node, session: Session, data: bytes) -> None:
    check(node.exchange(session, data), data)


def check(reply: bytes, data: bytes) -> None:
    """Raise `Refused` for an error or an empty reply, which no row expects."""
    if reply[:1] == b"-" or reply in {b"*-1\r\n", b"*0\r\n", b":0\r\n"}:
        raise Refused(f"the reply to {data[:200]!r} was {reply[:200]!r}")


def main() -> int:
    """Run the row with the given number."""
    directory, number = sys.argv[1:]
    run(ROWS[int(number)], Path(directory, number))
    return 0


if __name__ == "__main__":
    sys.exit(main())
