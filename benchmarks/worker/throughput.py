"""Messages per second of one process with a no-op handler, as a ratio to the raw loop of the same round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.rows import OURS, REDIS, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import WITH_REDIS, Store
from benchmarks.stores import measured as running
from benchmarks.worker import subjects
from benchmarks.worker.subjects import RAW, Failed, Peer, Sample

SECTION: Final = "worker"


class Subject(NamedTuple):
    """A kind of consumer, and its target on each store, as a ratio to the raw loop."""

    kind: str
    name: str
    targets: dict[str, Target]


PLAIN: Final = Target(0.6, 0.9)

BATCHES: Final = Target(1.0, 1.2)

SUBJECTS: Final = (
    Subject("plain", "plain handlers", {REDIS: PLAIN, OURS: PLAIN}),
    Subject("batch", "batches", {REDIS: BATCHES, OURS: BATCHES}),
    Subject("into", "into=", {REDIS: Target(0.9, 2.0), OURS: Target(1.2, 2.0)}),
    Subject("many", "plain handlers, one of 200 streams", {}),
)


def rows(selection: Selection, messages: int) -> Iterator[Row]:
    """Yield Headwater's rows on both stores, then a row for each peer on Redis."""
    with running(WITH_REDIS) as stores:
        for subject in SUBJECTS:
            for store in stores:
                name = f"{subject.name} on {store.name}"
                if selection.wants(name):
                    yield _row(selection, store, subject, name, messages)
        for store in stores:
            if store.name == REDIS:
                for peer in subjects.PEERS:
                    if selection.wants(peer.title):
                        yield _peer_row(selection, store, peer, messages)


def _row(selection: Selection, store: Store, subject: Subject, name: str, messages: int) -> Row:
    target = subject.targets.get(store.name)
    raw = "plain" if subject.kind == "many" else subject.kind
    row = Row(SECTION, name, "/s", against=RAW, target=target)
    for _ in range(selection.rounds):
        _add(row, RAW, subjects.raw(store, messages, raw))
        _add(row, OURS, subjects.ours(store, messages, subject.kind))
    return row


def _peer_row(selection: Selection, store: Store, peer: Peer, messages: int) -> Row:
    """Compare a peer with Headwater's worker, and note the peer's ratio to the raw loop."""
    row = Row(SECTION, f"compared with {peer.title}", "/s", against=peer.title)
    few = max(100, round(messages * peer.share))
    try:
        for _ in range(selection.rounds):
            _add(row, RAW, subjects.raw(store, messages, "plain"))
            _add(row, OURS, subjects.ours(store, messages, "plain"))
            _add(row, peer.title, subjects.peer(store, few, peer))
    except Failed as why:
        row.note = f"{peer.title} not available: {why}"
        return row
    share = row.of(peer.title).median / row.of(RAW).median
    row.note = f"{peer.title} is {share:.3f} of the raw loop; {', '.join(peer.requirements)}"
    return row


def _add(row: Row, name: str, sample: Sample) -> None:
    row.of(name).add(sample.rate, cpu_us=sample.cpu_us)
