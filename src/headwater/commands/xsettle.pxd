cimport cython
from cpython cimport array
from headwater.commands.call cimport Call
from headwater.commands.ids cimport IDBlock, distinct
from headwater.commands.xadd cimport AddRequest
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport push_id, push_word, u64, word_at
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter


cdef class _Settlement:
    cdef public bytes mode
    cdef public long long delay_ms
    cdef public bytes references
    cdef public bint any_owner
    cdef public list additions
    cdef public array.array ids

    cdef bint _delays(self) except -1
    cdef bint _deletes(self) except -1


@cython.locals(
    arguments=Arguments, group=ConsumerGroup, block=IDBlock, idle_ms="long long", index=Py_ssize_t,
    more=bint, ids=array.array, consumer=GroupConsumer, flags=bytearray, records=array.array,
    number=Py_ssize_t, ms=u64, seq=u64,
)
cpdef xrenew(Call call)

@cython.locals(flags=bytearray, number=Py_ssize_t, ms=u64, seq=u64)
cdef bytearray _settleable(
    ConsumerGroup group, GroupConsumer consumer, array.array ids, bint any_owner
)

@cython.locals(reply=ReplyWriter, number=Py_ssize_t)
cdef _write_flags(Call call, bytearray flags)

@cython.locals(
    arguments=Arguments, group=ConsumerGroup, settlement=_Settlement, consumer=GroupConsumer,
    flags=bytearray, ids=array.array, addition=AddRequest,
)
cpdef xsettle(Call call)

@cython.locals(number=Py_ssize_t, chosen=array.array)
cdef array.array _chosen(array.array ids, bytearray flags)

@cython.locals(
    mode=bytes, delays=bint, records=array.array, base=Py_ssize_t, ms=u64, seq=u64, count=u64,
    due=u64,
)
cdef _settle(
    Call call, StoredStream stream, ConsumerGroup group, array.array ids, _Settlement settlement
)

@cython.locals(reply=ReplyWriter, addition=AddRequest)
cdef _answer(Call call, bytearray flags, list additions)
