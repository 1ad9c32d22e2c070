"""The bytes of a link with one group of each kind, and changed ones."""

from __future__ import annotations

from random import Random

from headwater.journal.format.records import begin_group, seal_group
from headwater.server.services.replication.link import (
    CopyEnds,
    FileBegins,
    FilePart,
    Groups,
    LinkReader,
    LinkRefused,
    Received,
    SignOfLife,
    copy_ends,
    file_begins,
    file_part,
    sign_of_life,
)
from tests.crash.journal_tools import fact

SEED = 7


def group(facts: bytes, turn: int = 1) -> bytes:
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    seal_group(buffer, mark, turn, 1_000, SEED)
    return bytes(buffer)


def shown(received: Received) -> object:
    """Return what was received in a form that can be compared and kept."""
    if isinstance(received, Groups):
        rows = zip(received.starts, received.ends, received.times, strict=True)
        return [(bytes(received.data[start:end]), now_ms) for start, end, now_ms in rows]
    return received


def everything() -> bytes:
    """Return one group of each kind."""
    return b"".join([
        file_begins("journal-000001", 5, SEED), file_part(b"bytes", SEED),
        copy_ends(b"format 2\n", SEED), group(fact("one")), group(fact("two"), turn=2),
        sign_of_life(8, wanted=True, turn=3, now_ms=5, seed=SEED), group(fact("three"), turn=4),
    ])  # fmt: skip


ALL = [
    FileBegins("journal-000001", 5),
    FilePart(b"bytes"),
    CopyEnds(b"format 2\n"),
    [(fact("one"), 1_000), (fact("two"), 1_000)],
    SignOfLife(8, 5, True),
    [(fact("three"), 1_000)],
]


def mutated(data: bytes, random: Random) -> bytes:
    """Return the bytes with some changed, inserted, removed, repeated or moved."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at, length = random.randrange(len(changed)), random.randrange(1, 30)
        kind = random.randrange(5)
        if kind == 0:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[at:at] = random.randbytes(length)
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at : at + length] = changed[at : at + length][::-1]
        if not changed:
            return b"\0"
    return bytes(changed)


def wrongly_read(random: Random, count: int) -> list[object]:
    """Return what is read of ``count`` messages of changed bytes although it was not sent."""
    data, wrong = everything(), []
    sent = [one for item in ALL for one in (item if isinstance(item, list) else [item])]
    for _ in range(count):
        reader = LinkReader(SEED)
        reader.feed(mutated(data, random))
        try:
            for received in reader.read():
                item = shown(received)
                wrong += [
                    one for one in (item if isinstance(item, list) else [item]) if one not in sent
                ]
        except LinkRefused:
            pass
    return wrong
