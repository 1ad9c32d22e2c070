"""The invariant check reports each planted fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.common.model import flat_words
from headwater.engine.check import broken_invariants
from headwater.engine.entries import entry_log
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from tests.unit.keyspaces import database_of, keyspace_of

pytestmark = pytest.mark.skipif(
    not str(entry_log.__file__).endswith(".py"),
    reason="a compiled engine cannot be broken from outside; the plain run plants these faults",
)

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"


def sound() -> StoredStream:
    """A stream with entries of every kind: deleted, released, delayed, owned, with large counts."""
    db = Keyspace().databases[0]
    stream = db.create_stream(b"s", 1)
    for ms in range(1, 9):
        stream.append(ms, 0, WIRE, 1, ms in (1, 5))
    group = stream.create_group(b"g", 1, 0, 0, 0)
    ann = group.create_consumer(b"ann", 1, 10)
    bob = group.create_consumer(b"bob", 2, 10)
    group.deliver(ann, 50, (1, 0), (6, 0), 6, 6, noack=False)
    group.own(bob, flat_words([(2, 0, 60, 2**40), (5, 0, 40, 2)]), 60, 60)
    group.release(flat_words([(3, 0, 1)]))
    group.delay(flat_words([(4, 0, 900, 1)]))
    stream.delete([(3, 0), (7, 0)], marks=True)
    stream.idempotency.record(b"p", b"i", (6, 0), now_ms=9)
    stream.idempotency.record(b"p", b"j", (8, 0), now_ms=9)
    db.set_string(b"k", b"v")
    db.set_expiry(b"k", 1000)
    db.set_fields(b"h", [(b"f", b"v")])
    return stream


def test_a_sound_store_breaks_no_invariant() -> None:
    assert broken_invariants(keyspace_of(sound())) == []


def _set(
    target: Callable[[StoredStream], object], name: str, value: object
) -> Callable[[StoredStream], None]:
    return lambda stream: setattr(target(stream), name, value)


def _group(stream: StoredStream) -> ConsumerGroup:
    return stream.groups[b"g"]


FAULTS: dict[str, tuple[Callable[[StoredStream], object], str]] = {
    "length": (_set(lambda s: s.log, "length", 9), "the length is 9"),
    "live": (_set(lambda s: s.log.blocks[0], "live", 3), "are counted as live"),
    "head": (_set(lambda s: s.log.blocks[0], "head", 1), "are counted as live"),
    "id": (lambda s: s.log.blocks[0].ids.__setitem__(2, 9), "is not above the id before it"),
    "dead bytes": (_set(lambda s: s.log.blocks[0], "dead_bytes", 1), "dead_bytes is 1"),
    "wire": (lambda s: s.log.blocks[0].data.__setitem__(3, 0x41), "is not a well-formed reply"),
    "cut wire": (lambda s: s.log.blocks[0].data.pop(), "is not a well-formed reply"),
    "last_id": (_set(lambda s: s, "last_id", (7, 0)), "last_id 7-0 is below the last entry 8-0"),
    "deleted": (_set(lambda s: s, "max_deleted_id", (9, 0)), "below the last entry"),
    "gone": (
        _set(lambda s: _group(s).pel.blocks[0], "dangling", False),
        "3-0 is pending and deleted",
    ),
    "added": (_set(lambda s: s, "entries_added", 5), "entries_added is 5"),
    "node": (lambda s: s.nodes.drop(8, 0), "node"),
    "node order": (lambda s: s.nodes._words.__setitem__(7, 0), "out of order"),
    "names of nodes": (lambda s: s.nodes.names.pop(), "sets of field names"),
    "group's name": (_set(_group, "name", b"x"), "has the name b'x'"),
    "entries_read": (_set(_group, "entries_read", -5), "entries_read is -5"),
    "owner": (_set(lambda s: _group(s).consumers[b"ann"], "pending", 7), "counts 7 pending"),
    "cid": (_set(_group, "next_cid", 2), "not below the next"),
    "no owner": (lambda s: _group(s).by_cid.pop(2), "which does not exist"),
    "released": (lambda s: _group(s).released.clear(), "without an owner are"),
    "both": (lambda s: _group(s).delayed.update({(3, 0): 0}), "both released and delayed"),
    "due": (lambda s: _group(s).due_order.clear(), "due_order is"),
    "delaying": (lambda s: s.keyspace.delaying.clear(), "are listed as delaying"),
    "order": (lambda s: _group(s).order.clear(), "the delivery order has 0 entries"),
    "order's index": (lambda s: _group(s).order.index.clear(), "the index of the time"),
    "covered": (_set(lambda s: _group(s).order, "covered", 1), "covers 8 records, not 1"),
    "runs": (lambda s: _group(s).order.times.append(99), "runs of the delivery order"),
    "pel": (_set(lambda s: _group(s).pel, "length", 3), "the pending length is 3"),
    "min_time": (_set(lambda s: _group(s).pel.blocks[0], "min_time", 70), "min_time 70 is above"),
    "owners": (_set(lambda s: _group(s).pel.blocks[0], "owners", 0), "lack the owner of a record"),
    "due notes": (lambda s: s.keyspace.due_notes.clear(), "no due note"),
    "large count": (lambda s: _group(s).pel.big_counts.update({(1, 0): 2**33}), "large delivery"),
    "duration": (_set(lambda s: s.idempotency, "duration_s", 0), "are remembered for 0 s"),
    "iids": (_set(lambda s: s.idempotency, "tracked", 5), "5 iids are counted as tracked"),
    "maxsize": (_set(lambda s: s.idempotency, "maxsize", 1), "b'p' has 2 iids, of at most 1"),
    "iids' sid": (_set(lambda s: s.idempotency, "sid", 9), "belong to stream number 9"),
    "iid's note": (
        lambda s: keyspace_of(s).iid_deadlines.notes.clear(),
        "oldest iid of producer b'p'",
    ),
    "sid": (lambda s: s.keyspace.streams.clear(), "streams by number"),
    "gid": (lambda s: s.keyspace.groups.clear(), "groups by number"),
    "next": (_set(lambda s: s.keyspace, "next_sid", 1), "the next numbers, 1 and 2, are in use"),
    "unseen": (lambda s: s.keyspace.unseen.update({9: {9: None}}), "consumer 9 of group 9"),
    "expiry": (lambda s: database_of(s).expiries.update({b"x": 5}), "does not exist"),
    "note": (lambda s: database_of(s).expiry_notes.clear(), "no expiry note for b'k'"),
    "hash": (lambda s: database_of(s).values.update({b"h": {}}), "b'h' is an empty dict"),
    "set": (lambda s: database_of(s).values.update({b"h": set()}), "b'h' is an empty set"),
    "used": (lambda s: database_of(s).used.update({b"s": 5}), "has a time of use and is a stream"),
    "scan": (lambda s: database_of(s).order.names.remove(b"k"), "SCAN would never find b'k'"),
    "numbers": (lambda s: database_of(s).order.numbers.reverse(), "order of keys is not ascending"),
    "key": (_set(lambda s: s, "key", b"x"), "has the key b'x'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_reported(name: str) -> None:
    plant, sentence = FAULTS[name]
    stream = sound()
    plant(stream)
    found = broken_invariants(keyspace_of(stream))
    assert any(sentence in one for one in found), found
