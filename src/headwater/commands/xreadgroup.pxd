cimport cython
from headwater.commands.call cimport Call, Wait
from headwater.commands.group_reads cimport GroupDelivery, GroupRead, History
from headwater.commands.xread cimport ReadLimits, ReadOptions, begin_stream, begin_streams
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport u64
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter

cdef int _GREATER, _DOLLAR, _PLUS
cdef u64 MAX_U64


@cython.locals(
    arguments=Arguments, options=ReadOptions, keys=list, reads=list, number=Py_ssize_t,
    key=bytes, group=ConsumerGroup, limits=ReadLimits, given=bint, delivery=GroupDelivery,
    history=History, wait=Wait,
)
cpdef xreadgroup(Call call)

@cython.locals(size=Py_ssize_t, given=list, read=GroupRead)
cdef bint _give(
    Call call, list reads, ReadLimits limits, Py_ssize_t most_bytes
) except -1

@cython.locals(size=Py_ssize_t, read=GroupRead)
cdef bint _give_in_turn(Call call, list reads, ReadLimits limits) except -1

@cython.locals(read=GroupRead, reply=ReplyWriter, body=ReplyWriter, given=Py_ssize_t)
cdef bint _take_turns(Call call, list reads, ReadLimits limits) except -1

@cython.locals(read=GroupRead)
cdef _warm(Call call, list reads, Py_ssize_t most_bytes=*)

@cython.locals(read=GroupRead, wide=ReadLimits)
cdef _warm_for_turns(Call call, list reads, ReadLimits limits)

@cython.locals(stream=StoredStream, group=ConsumerGroup)
cdef ConsumerGroup _group_of(Call call, bytes key, ReadOptions options)

cdef bint _asks_for_new(Arguments arguments, Py_ssize_t at) except -1
