"""Writes the whole state of a store as facts in bulk (image_facts.py).

Rule 1. Replaying the facts into an empty keyspace gives an equal state, as if it had been recovered from the
        journal. Times of last use, which a restart loses, are not written. Seen times that no fact has recorded
        yet are written too.
Rule 2. The state is only read. It must not change between two record groups.
Rule 3. Blocks that may be sealed are written compressed if the store has a codec, and are sealed when they
        are restored. No reply or record depends on that (sealing.py, rule 1).
Rule 4. Of a stored block, only its place and the values that are known without its body are written.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from headwater.engine.accounts.weights import NODE_WORDS
from headwater.engine.bodies.block_account import HOT
from headwater.engine.bodies.codecs import NONE, Codec, make_codec
from headwater.engine.bodies.sealed_block import body_of, marks_of
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.groups.consumer import NEVER
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.image.image_facts import GROUP_BYTES, ImageFacts
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.redis_nodes.nodes import NodeIndex
from headwater.engine.streams.stream import StoredStream

T = TypeVar("T")

_AT_ONCE = GROUP_BYTES // 32
"""Maximum number of items (such as records, runs or nodes) in one fact; each has 8 to 56 bytes."""

_BLOCKS_AT_ONCE = 32
"""Maximum number of blocks of pending records in one fact, 8 KiB each."""

_WORTH = 0.9
"""A block is written compressed only if that reduces it to at most this share of its size, as in sealing.py."""


def image_facts(keyspace: Keyspace) -> Iterator[bytearray]:
    """Yield the facts of the whole state, one record group at a time. A group has about `GROUP_BYTES`, or more
    if a single string, block, member or name is larger."""
    return _Image(keyspace).groups()


class _Image:
    """The image that is being written."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.out = ImageFacts()
        codec = keyspace.sealing.codec
        self.codec: Codec | None = None if codec == NONE else make_codec(codec)
        self.numbers: dict[int, int] = {}
        """The number of each shared block, by its identity."""

    def groups(self) -> Iterator[bytearray]:
        """Yield the record groups. The methods of the parts yield whenever a group may be complete."""
        self.out.image_begun(self.keyspace.next_sid, self.keyspace.next_gid)
        for _ in chain.from_iterable(map(self._database, self.keyspace.databases)):
            if self.out.full:
                yield self.out.take()
        self.out.image_ended()
        yield self.out.take()

    def _database(self, database: Database) -> Iterator[None]:
        facts, db = self.out.facts, database.index
        for key, value in database.values.items():
            if isinstance(value, bytes):
                facts.string_set(db, key, value)
            elif isinstance(value, StoredStream):
                facts.stream_created(db, value.sid, key)
                yield from self._stream(value)
            elif isinstance(value, dict):
                for pairs in _parts(value.items(), lambda pair: len(pair[0]) + len(pair[1])):
                    facts.hash_set(db, key, pairs)
                    yield
            else:
                for members in _parts(value, len):
                    if isinstance(value, deque):
                        facts.list_pushed(db, key, False, members)
                    else:
                        facts.set_added(db, key, members)
                    yield
            if key in database.expiries:
                facts.expiry_set(db, key, database.expiries[key])
            yield
        order, found = database.order, database.order.numbers_of(database.values)
        for first in range(0, len(found), _AT_ONCE):
            part = found[first : first + _AT_ONCE]
            self.out.key_numbers(db, first, order.next_number, part)
            yield

    # --- streams --------------------------------------------------------------------------------

    def _stream(self, stream: StoredStream) -> Iterator[None]:
        out, sid = self.out, stream.sid
        out.stream_state(stream)
        for block in stream.log.blocks:
            self._block(sid, block)
            yield
        yield from self._nodes(sid, stream.nodes)
        for pid, producer in stream.idempotency.producers.items():
            iids = (
                (iid, entry_id, since_ms)
                for (iid, entry_id), since_ms in zip(
                    producer.iids.items(), producer.since_ms, strict=True
                )
            )
            for part in _parts(iids, lambda one: len(one[0]) + 24):
                out.producer(sid, pid, part)
                yield
        for group in stream.groups.values():
            yield from self._group(group)

    def _block(self, sid: int, block: EntryBlock) -> None:
        number = 0
        if block.shared:
            number = self.numbers.get(id(block), 0)
            if number:
                self.out.shared_block(sid, number)
                return
            number = self.numbers[id(block)] = len(self.numbers) + 1
        packed = block.packed
        if packed is not None and packed.wire is None:
            self.out.stored_block(sid, number, block)
            return
        if packed is not None and packed.wire is not None:
            self.out.sealed_block(sid, number, block, packed.codec, packed.wire, packed.size)
            return
        if self.codec is not None and block.closed and block.books == HOT:
            wire = body_of(block.data, marks_of(block.offsets, len(block.data)), self.codec)
            small = len(wire) <= _WORTH * len(block.data)
            if small and block.count - block.head <= 2 * block.live:
                self.out.sealed_block(sid, number, block, self.codec.name, wire, len(block.data))
                return
        self.out.raw_block(sid, number, block)

    def _nodes(self, sid: int, nodes: NodeIndex) -> Iterator[None]:
        for first in range(0, len(nodes), _AT_ONCE):
            words, every = nodes.part(first, min(first + _AT_ONCE, len(nodes)))
            begin = 0
            for names in _parts(every, lambda one: len(one[1])):
                end = begin + NODE_WORDS * sum(count for count, _ in names)
                self.out.nodes(sid, words[begin:end], names)
                begin = end
                yield

    # --- groups ---------------------------------------------------------------------------------

    def _group(self, group: ConsumerGroup) -> Iterator[None]:
        facts, gid = self.out.facts, group.gid
        ms, seq = group.last_id
        facts.group_created(group.stream.sid, gid, ms, seq, group.entries_read, group.name)
        self.out.group_state(group)
        yield
        for one in group.consumers.values():
            facts.consumer_created(gid, one.cid, one.seen_time, one.name)
            if one.active_time != NEVER:
                facts.consumer_seen(gid, one.cid, one.seen_time, one.active_time)
            yield
        blocks = group.pel.blocks
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            self.out.pending(gid, blocks[first : first + _BLOCKS_AT_ONCE])
            yield
        big = ((*entry_id, count) for entry_id, count in group.pel.big_counts.items())
        for words in _words(big):
            self.out.big_counts(gid, words)
            yield
        for words in _words(group.released):
            self.out.unowned(gid, words)
            yield
        for words in _words(group.due_order):
            self.out.delays(gid, words)
            yield
        order = group.order
        for first in range(0, len(order), _AT_ONCE):
            end = first + _AT_ONCE
            ids = order.ids[4 * first : 4 * end]
            self.out.order(gid, order.times[first:end], ids, order.counts[first:end])
            yield


def _parts(values: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield ``values`` in lists of about `GROUP_BYTES`."""
    part: list[T] = []
    held = 0
    for value in values:
        part.append(value)
        held += size(value) + 8
        if held >= GROUP_BYTES:
            yield part
            part, held = [], 0
    if part:
        yield part


def _words(rows: Iterable[tuple[int, ...]]) -> Iterator[array[int]]:
    """Yield rows as consecutive words, at most `_AT_ONCE` rows at a time."""
    words: array[int] = array("Q")
    count = 0
    for row in rows:
        words.extend(row)
        count += 1
        if count == _AT_ONCE:
            yield words
            words, count = array("Q"), 0
    if count:
        yield words
