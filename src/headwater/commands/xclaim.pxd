cimport cython
from cpython cimport array
from headwater.commands.call cimport Call
from headwater.commands.group_reads cimport counted_once_more, ensure_consumer
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.entries.entry_log cimport EntryLog
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.groups.pending cimport PendingList
from headwater.engine.groups.pending_block cimport PendingBlock
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport push_id, push_word, u64, word_at
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter

cdef long long MAX_DELIVERY_COUNT


@cython.final
cdef class ClaimOptions:
    cdef public long long time
    cdef public long long count
    cdef public bint force
    cdef public bint justid
    cdef public tuple last_id

    @cython.locals(idle="long long", time="long long")
    cdef bint _valued(self, Call call, Arguments arguments, Py_ssize_t index) except -1


cdef class _Claims:
    cdef public ConsumerGroup group
    cdef public long long now_ms
    cdef public long long min_idle
    cdef public array.array records
    cdef public list wires
    cdef public list missed
    cdef public dict gone

    cdef bint idle_enough(self, long long time) except -1
    @cython.locals(pel=PendingList)
    cdef bint too_young(self, Py_ssize_t at) except -1
    cdef bint all_too_young(self, u64 min_time) except -1
    @cython.locals(log=EntryLog)
    cdef bytes wire_of(self, u64 ms, u64 seq, bint justid)
    cdef warm(self, Call call)
    cdef take(self, u64 ms, u64 seq, bytes wire, u64 time, u64 count)
    cdef Py_ssize_t fact_bytes(self) except -1
    @cython.locals(group=ConsumerGroup, consumer=GroupConsumer)
    cdef carry_out(self, Call call, bytes name)
    @cython.locals(reply=ReplyWriter, records=array.array, number=Py_ssize_t, wire=bytes)
    cdef write(self, Call call, bint justid)


cdef class _NamedClaims(_Claims):
    cdef dict _claimed

    @cython.locals(
        group=ConsumerGroup, entry_id=tuple, at=Py_ssize_t, wire=bytes, claimed=tuple, count=u64
    )
    cdef claim(self, u64 ms, u64 seq, ClaimOptions options)


cdef u64 _claimed_count(u64 count, ClaimOptions options)

@cython.locals(
    arguments=Arguments, stream=StoredStream, group=ConsumerGroup, min_idle="long long",
    claims=_NamedClaims, index=Py_ssize_t, ids=array.array, found=tuple, options=ClaimOptions,
    base=Py_ssize_t, name=bytes,
)
cpdef xclaim(Call call)

@cython.locals(
    arguments=Arguments, stream=StoredStream, group=ConsumerGroup, min_idle="long long", start=tuple,
    count="long long", justid=bint, index=Py_ssize_t, claims=_Claims, scan=_Scan, cursor=tuple,
    name=bytes, reply=ReplyWriter, entry_id=tuple,
)
cpdef xautoclaim(Call call)


cdef class _Scan:
    cdef _Claims claims
    cdef StoredStream stream
    cdef long long count
    cdef long long most
    cdef bint justid

    @cython.locals(pel=PendingList, at=Py_ssize_t)
    cdef tuple run(self, tuple start)
    @cython.locals(
        pel=PendingList, block=PendingBlock, left=Py_ssize_t, whole=bint, gone=Py_ssize_t
    )
    cdef Py_ssize_t _through_block(self, Py_ssize_t at) except -2
    @cython.locals(claims=_Claims, pel=PendingList, ms=u64, seq=u64, wire=bytes, deliveries=u64)
    cdef _look_at(self, Py_ssize_t at)
    @cython.locals(trimmed=tuple)
    cdef bint _passes_over(self, PendingBlock block) except -1
