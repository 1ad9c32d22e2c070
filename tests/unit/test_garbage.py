"""Large deleted values are freed in steps, and completely in the end."""

from __future__ import annotations

import gc
import weakref
from collections import deque

import pytest

from headwater.common.limits import SMALL_GARBAGE
from headwater.common.model import flat_words
from headwater.engine.keyspace.garbage import free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.testing.node import LocalStore

LARGE = 4 * SMALL_GARBAGE


def large_stream(keyspace: Keyspace) -> StoredStream:
    """Create a stream with a group that has all entries pending, some of them released or delayed."""
    stream = keyspace.databases[0].create_stream(b"s", keyspace.next_sid)
    for ms in range(1, LARGE + 1):
        stream.append(ms, 0, b"$1\r\na\r\n$1\r\nb\r\n", 1, opens_node=ms == 1)
    group = stream.create_group(b"g", keyspace.next_gid, 0, 0, 0)
    reader = group.create_consumer(b"c", 1, 0)
    group.deliver(reader, 5, (1, 0), (LARGE, 0), LARGE, LARGE, noack=False)
    group.release(flat_words([(ms, 0, 1) for ms in range(1, 300)]))
    group.delay(flat_words([(ms, 0, 900, 1) for ms in range(300, 600)]))
    return stream


class Part:
    """An object among the blocks of a stream, to observe when they are freed."""


def test_a_large_stream_is_deleted_at_once_and_freed_in_steps() -> None:
    # Given a large stream
    keyspace = Keyspace()
    stream = large_stream(keyspace)
    part = Part()
    for blocks in (stream.log.blocks, stream.groups[b"g"].pel.blocks):
        blocks.append(part)  # type: ignore[arg-type]
    seen = weakref.ref(part)
    del stream, blocks, part
    gc.disable()
    try:
        # When its key is deleted
        keyspace.databases[0].delete(b"s")
        # Then it is gone, and is freed in steps, without the cyclic collector
        assert keyspace.databases[0].lookup(b"s", 0) is None
        assert keyspace.garbage
        steps = 0
        while keyspace.garbage:
            free(keyspace.garbage, 100)
            steps += 1
        assert seen() is None
        assert steps > 5
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "value", [dict.fromkeys(range(50), b"x"), list(range(50)), set(range(50)), deque(range(50))]
)
def test_any_container_is_emptied(value: object) -> None:
    garbage = [value]
    free(garbage, 20)
    assert garbage == [value]
    assert len(value) == 30  # type: ignore[arg-type]
    free(garbage, 1000)
    assert garbage == []


def test_a_store_frees_deleted_values_without_requests() -> None:
    # Given a store with a large hash and a group with a large pending list
    store = LocalStore(journaled=False)
    client = store.client()
    for number in range(LARGE):
        client("HSET", "hash", number, "x")
    large_stream(store.node.keyspace)
    # When the group is destroyed and everything is flushed
    client("XGROUP", "DESTROY", "s", "g")
    client("FLUSHALL")
    # Then the node's ticks free it
    while store.node.keyspace.garbage:
        assert store.seconds_ahead() == 0
        store.advance(0.001)
