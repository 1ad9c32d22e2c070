"""Payloads with a correct checksum and a damaged value are refused or restored, without other effects."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Simple
from tests.unit.rdb import old_payloads as old
from tests.unit.rdb.test_streams import of_kind, plain
from tests.unit.rdb.test_values import READ

BODIES = [
    *(of_kind(kind)[:-10] for kind in (15, 19, 21, 26, 27)),
    plain(nodes=[old.node([((5, seq), [b"n", b"%d" % seq], seq % 3 > 0) for seq in range(1, 90)])],
          size=60, last_id=(5, 89), added=89),
    *(body for body, _ in READ.values()),
]  # fmt: skip

EDGES = [0, 1, 2, 63, 64, 127, 128, 191, 192, 195, 240, 244, 254, 255]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid value in which some bytes were changed, added, removed or copied from another value."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        size = draw(st.integers(0, 9))
        other = draw(st.sampled_from(BODIES))
        begin = draw(st.integers(0, len(other)))
        replacement = draw(
            st.one_of(
                st.binary(max_size=9),
                st.sampled_from(EDGES).map(lambda byte: bytes([byte])),
                st.integers(0, 2**64 - 1).map(old.length),
                st.just(other[begin : begin + size]),
            )
        )
        body[at : at + size] = replacement
    return bytes(body)


def restored(store: LocalStore, body: bytes) -> bool:
    """Whether RESTORE accepts this value. Any other error fails the test."""
    client = store.client()
    reply = client("RESTORE", "k", 0, old.sealed(body), "REPLACE")
    if reply == Failure(b"ERR Bad data format"):
        return False
    assert reply == Simple(b"OK")
    return True


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_a_mutated_value_is_refused_or_makes_a_sound_store(body: bytes) -> None:
    # Given a store with a key, and a value that is no longer what a server wrote
    store = LocalStore(journaled=False)
    store.node.keyspace.facts.muted = False
    store.client()("SET", "k", "old")
    before = bytes(store.node.keyspace.facts.data)

    # When it is restored over the key
    if not restored(store, body):
        # Then a refusal has changed nothing
        assert store.client()("GET", "k") == b"old"
        assert bytes(store.node.keyspace.facts.data) == before
        return

    # And an accepted value is consistent, and can be dumped in every form and restored again
    keyspace = store.node.keyspace
    assert broken_invariants(keyspace) == []
    for form in ("7.0", "8.2", "8.8"):
        store.settings.dump_format = form
        payload = store.client()("DUMP", "k")
        assert isinstance(payload, bytes)
        assert store.client()("RESTORE", "again", 0, payload, "REPLACE") == Simple(b"OK")
    assert broken_invariants(keyspace) == []

    # And replaying its facts into an empty store gives the same
    replayed = Keyspace()
    Replay(replayed).apply(memoryview(bytes(keyspace.facts.data)), 0)
    assert broken_invariants(replayed) == []
    assert bytes(replayed.facts.data) == bytes(keyspace.facts.data)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 30), st.binary(max_size=80))
def test_any_bytes_are_refused_or_make_a_sound_store(kind: int, value: bytes) -> None:
    store = LocalStore(journaled=False)
    restored(store, bytes([kind]) + value)
    assert broken_invariants(store.node.keyspace) == []


def test_the_values_before_mutation_are_valid() -> None:
    for body in BODIES:
        assert restored(LocalStore(journaled=False), body)
