cimport cython
from cpython cimport array
from headwater.engine.groups.delivery_order cimport DeliveryOrder
from headwater.engine.entries.entry_block cimport EntryBlock
from headwater.engine.facts.fact_reader cimport FactReader
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.engine.groups.pending cimport PendingList
from headwater.engine.groups.pending_block cimport PendingBlock
from headwater.engine.bodies.sealed_block cimport SealedBlock
from headwater.engine.tier.sealing cimport Sealing
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport u64, word_at
from headwater.native.packing_c cimport index_entries, unpack_ids, unpack_rows

cdef Py_ssize_t NODE_WORDS, PENDING_BLOCK_RECORDS
cdef Py_ssize_t _MOST_ENTRIES


@cython.final
cdef class Restoring:
    cdef public Keyspace keyspace
    cdef public bint begun
    cdef public dict shared
    cdef public dict blobs
    cdef public dict codecs
    cdef bytes _packed_ids

    cpdef apply(self, int kind, FactReader reader)
    cdef _stream_fact(self, int kind, StoredStream stream, FactReader reader)
    cdef _group_fact(self, int kind, ConsumerGroup group, FactReader reader)
    cdef _begin(self, FactReader reader)
    @cython.locals(db=Py_ssize_t, first=u64, next_number=u64)
    cdef _key_numbers(self, FactReader reader)
    cdef _stream_state(self, StoredStream stream, FactReader reader)
    @cython.locals(count=Py_ssize_t, alike=Py_ssize_t)
    cdef _nodes(self, StoredStream stream, FactReader reader)
    @cython.locals(block=EntryBlock, number=Py_ssize_t, offsets=array.array)
    cdef _raw_block(self, StoredStream stream, FactReader reader)
    @cython.locals(
        block=EntryBlock, number=Py_ssize_t, codec=str, size=u64, packed_ids=bytes, entries=u64
    )
    cdef _sealed_block(self, StoredStream stream, FactReader reader)
    @cython.locals(
        sealing=Sealing, block=EntryBlock, number=Py_ssize_t, codec=str, size=u64, entries=u64,
        packed=SealedBlock,
    )
    cdef _stored_block(self, StoredStream stream, FactReader reader)
    @cython.locals(number=Py_ssize_t, entries=Py_ssize_t, count=Py_ssize_t, first=tuple)
    cdef Py_ssize_t _read_block(
        self, StoredStream stream, EntryBlock block, FactReader reader
    ) except -1
    @cython.locals(number=Py_ssize_t, block=EntryBlock)
    cdef _shared_block(self, StoredStream stream, FactReader reader)
    cdef _check_order(self, StoredStream stream, tuple first)
    cdef _place(self, StoredStream stream, EntryBlock block, Py_ssize_t number)
    cdef str _codec(self, bytes name)
    @cython.locals(pel=PendingList, block=PendingBlock, count=Py_ssize_t)
    cdef _pending(self, ConsumerGroup group, FactReader reader)
    @cython.locals(at=Py_ssize_t, same=Py_ssize_t, owner=u64, consumer=GroupConsumer)
    cdef _count_owners(self, ConsumerGroup group, PendingBlock block)
    @cython.locals(pel=PendingList, entry_id=tuple)
    cdef _big_counts(self, ConsumerGroup group, FactReader reader)
    @cython.locals(count=Py_ssize_t, order=DeliveryOrder, counts=array.array)
    cdef _order(self, ConsumerGroup group, FactReader reader)
    cdef _delays(self, ConsumerGroup group, FactReader reader)
