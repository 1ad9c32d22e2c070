cimport cython
from cpython cimport array
from headwater.commands.call cimport Call
from headwater.commands.xread cimport NewEntries, ReadLimits, Share, entries_after
from headwater.engine.groups.delivery_order cimport DeliveryWalk
from headwater.engine.entries.entry_log cimport EntryLog
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.groups.pending cimport PendingList
from headwater.native.memory_c cimport new_words, push_id, push_word, u64, word_at
from headwater.resp.replies cimport ReplyWriter

cdef array.array _NONE
cdef Py_ssize_t _NO_AGE_BYTES, _ENTRY_HEADER
cdef u64 MAX_DELIVERY_COUNT


cdef class GroupRead:
    cdef public Call call
    cdef public bytes key
    cdef public ConsumerGroup group
    cdef public bytes name
    cdef public GroupConsumer consumer
    cdef public list missed

    cdef begin(self, Call call, bytes key, ConsumerGroup group, bytes name)
    cpdef bint plan(self, ReadLimits limits) except -1
    cpdef Py_ssize_t fact_bytes(self) except -1
    cpdef Py_ssize_t most_fact_bytes(self, ReadLimits limits) except -1
    cpdef give(self, ReplyWriter reply)
    cpdef recheck_at_ms(self)
    cpdef list spans(self)
    cpdef forget(self)
    cdef Py_ssize_t consumer_bytes(self) except -1
    cdef Py_ssize_t pending_after(self) except -1
    cpdef GroupConsumer ensure_consumer(self)
    cpdef mark_seen(self)


@cython.locals(consumer=GroupConsumer)
cpdef GroupConsumer ensure_consumer(Call call, ConsumerGroup group, bytes name)


cdef class GroupDelivery(GroupRead):
    cdef public bint noack
    cdef public long long claim_ms
    cdef public array.array claims
    cdef public list wires
    cdef public NewEntries entries
    cdef public Py_ssize_t new

    @cython.locals(share=Share, entries=NewEntries)
    cpdef bint plan(self, ReadLimits limits) except -1
    cpdef list spans(self)
    cpdef forget(self)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t fact_bytes(self) except -1
    @cython.locals(claims=Py_ssize_t, most=Py_ssize_t)
    cpdef Py_ssize_t most_fact_bytes(self, ReadLimits limits) except -1
    @cython.locals(group=ConsumerGroup, walk=DeliveryWalk, at=Py_ssize_t)
    cdef _claim(self, Share share)
    @cython.locals(
        pel=PendingList, claims=array.array, idle="long long", ms=u64, seq=u64, deliveries=u64,
        wire=bytes, size=Py_ssize_t,
    )
    cdef bint _take(self, Py_ssize_t at, Share share) except -1
    @cython.locals(
        group=ConsumerGroup, now_ms="long long", consumer=GroupConsumer, entries=NewEntries,
        read="long long", number=Py_ssize_t, wire=bytes,
    )
    cpdef give(self, ReplyWriter reply)
    @cython.locals(records=array.array, base=Py_ssize_t)
    cdef array.array _claimed_records(self)
    @cython.locals(pel=PendingList, log=EntryLog, walk=DeliveryWalk, at=Py_ssize_t)
    cpdef recheck_at_ms(self)


cpdef u64 counted_once_more(u64 deliveries)


cdef class History(GroupRead):
    cdef public tuple after
    cdef public array.array ids
    cdef public list wires
    cdef public array.array records

    @cython.locals(share=Share)
    cpdef bint plan(self, ReadLimits limits) except -1
    @cython.locals(
        pel=PendingList, cid=Py_ssize_t, left=Py_ssize_t, at=Py_ssize_t, ms=u64, seq=u64,
        wire=bytes,
    )
    cdef _find(self, GroupConsumer consumer, Share share)
    cpdef forget(self)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t fact_bytes(self) except -1
    @cython.locals(found=Py_ssize_t, most=Py_ssize_t)
    cpdef Py_ssize_t most_fact_bytes(self, ReadLimits limits) except -1
    @cython.locals(consumer=GroupConsumer, number=Py_ssize_t, wire=bytes)
    cpdef give(self, ReplyWriter reply)
