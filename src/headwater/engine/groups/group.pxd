cimport cython
from cpython cimport array
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.delivery_order cimport DeliveryOrder
from headwater.engine.entries.entry_block cimport Span
from headwater.engine.facts.facts cimport FactBuffer
from headwater.engine.shared.history cimport StreamHistory
from headwater.engine.shared.keyspace_state cimport KeyspaceState
from headwater.engine.groups.pending cimport PendingList
from headwater.native.memory_c cimport u64, word_at


cdef Py_ssize_t CONSUMER_BYTES, DELAYED_BYTES, RELEASED_BYTES


cdef class ConsumerGroup:
    cdef public StreamHistory stream
    cdef public KeyspaceState keyspace
    cdef public FactBuffer facts
    cdef public bytes name
    cdef public Py_ssize_t gid
    cdef public tuple last_id
    cdef public long long entries_read
    cdef public dict consumers
    cdef public dict by_cid
    cdef public Py_ssize_t next_cid
    cdef public PendingList pel
    cdef public DeliveryOrder order
    cdef public dict released
    cdef public dict delayed
    cdef public list due_order
    cdef public Py_ssize_t names_bytes
    cdef public Py_ssize_t booked

    @cython.locals(at=Py_ssize_t)
    cpdef bint owns(self, GroupConsumer consumer, u64 ms, u64 seq) except -1
    @cython.locals(
        stream=StreamHistory, read="long long", last=tuple, done=Py_ssize_t, span=Span, at=Py_ssize_t,
        ids=array.array, counted=bint, left="long long",
    )
    cpdef long long entries_read_after(self, list spans, long long count) except? -1
    cpdef see(self, GroupConsumer consumer, long long now_ms)
    @cython.locals(spans=list)
    cpdef deliver(
        self, GroupConsumer consumer, long long time, tuple first, tuple last, Py_ssize_t count,
        long long entries_read, bint noack,
    )
    @cython.locals(
        before=tuple, first=tuple, span=Span, ids=array.array, at=Py_ssize_t, last=Py_ssize_t
    )
    cpdef deliver_spans(
        self, GroupConsumer consumer, long long time, list spans, Py_ssize_t count,
        long long entries_read, bint noack,
    )
    @cython.locals(
        pel=PendingList, done=Py_ssize_t, total=Py_ssize_t, ms=u64, seq=u64, at=Py_ssize_t,
        count=Py_ssize_t,
    )
    cpdef acknowledge(self, array.array ids)
    @cython.locals(
        pel=PendingList, order=DeliveryOrder, cid=Py_ssize_t, begun=Py_ssize_t, run=Py_ssize_t,
        run_time=u64, base=Py_ssize_t, ms=u64, seq=u64, time=u64, count=u64, at=Py_ssize_t,
    )
    cpdef own(
        self, GroupConsumer consumer, array.array records, long long seen_time, long long active_time
    )
    @cython.locals(base=Py_ssize_t, ms=u64, seq=u64)
    cpdef release(self, array.array records)
    @cython.locals(base=Py_ssize_t, ms=u64, seq=u64, due=u64)
    cpdef delay(self, array.array records)
    @cython.locals(ended=Py_ssize_t, base=Py_ssize_t, at=Py_ssize_t, entry_id=tuple)
    cpdef end_delay(self, array.array ids)
    @cython.locals(size=Py_ssize_t)
    cpdef int book(self) except -1
    cdef _seen(self, GroupConsumer consumer, long long seen_time, long long active_time)
    @cython.locals(pel=PendingList, ms=u64, seq=u64, count=Py_ssize_t, at=Py_ssize_t)
    cdef _add(
        self, GroupConsumer consumer, array.array ids, Py_ssize_t first, Py_ssize_t end, long long time
    )
    @cython.locals(at=Py_ssize_t)
    cdef _disown(self, u64 ms, u64 seq, u64 time, u64 count)
    @cython.locals(
        pel=PendingList, end=Py_ssize_t, same=Py_ssize_t, owner=u64, consumer=GroupConsumer,
        one=Py_ssize_t,
    )
    cdef _leave_run(self, Py_ssize_t at, Py_ssize_t count)
    cdef _leave(self, Py_ssize_t at)
    cdef _leave_unowned(self, tuple entry_id)
