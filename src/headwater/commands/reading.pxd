cimport cython
from headwater.commands.call cimport Call, Wait
from headwater.commands.delivery cimport (
    GroupDelivery, GroupRead, History, NewEntries, entries_after,
)
from headwater.commands.timeouts cimport milliseconds
from headwater.commands.read_limits cimport ReadLimits, Share
from headwater.engine.group cimport ConsumerGroup
from headwater.engine.stream cimport StoredStream
from headwater.memory_c cimport u64
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter

cdef int _GREATER, _DOLLAR, _PLUS
cdef u64 MAX_U64


@cython.final
@cython.freelist(4)
cdef class ReadOptions:
    cdef public Py_ssize_t count
    cdef public long long block_ms
    cdef public long long claim_ms
    cdef public Py_ssize_t maxcount
    cdef public Py_ssize_t maxsize
    cdef public bint noack
    cdef public bytes group
    cdef public bytes consumer
    cdef public Py_ssize_t keys_at
    cdef public Py_ssize_t streams
    cdef bint _grouped
    cdef long long _now_ms

    @cython.locals(index=Py_ssize_t, more=Py_ssize_t)
    cdef read(self, Arguments arguments, long long now_ms, bint grouped)
    cdef Py_ssize_t _option(
        self, Arguments arguments, Py_ssize_t index, Py_ssize_t more
    ) except -1
    @cython.locals(rest=Py_ssize_t)
    cdef _keys(self, Arguments arguments, Py_ssize_t start)
    @cython.locals(limits=ReadLimits)
    cdef ReadLimits limits(self)
    @cython.locals(at=Py_ssize_t)
    cdef list keys(self, Arguments arguments)
    cdef Py_ssize_t id_at(self, Py_ssize_t stream)


@cython.locals(
    arguments=Arguments, reply=ReplyWriter, options=ReadOptions, keys=list, frozen=dict,
    found=list, missing=list, number=Py_ssize_t, key=bytes, stream=StoredStream, at=Py_ssize_t,
    text=bytes, entries=NewEntries, limits=ReadLimits,
)
cpdef xread(Call call)

@cython.locals(share=Share, entries=NewEntries, left=NewEntries)
cdef list _within(ReadLimits limits, list found)

@cython.locals(
    arguments=Arguments, options=ReadOptions, keys=list, reads=list, number=Py_ssize_t,
    key=bytes, group=ConsumerGroup, limits=ReadLimits, given=bint, delivery=GroupDelivery,
    history=History, wait=Wait,
)
cpdef xreadgroup(Call call)

@cython.locals(size=Py_ssize_t, given=list, read=GroupRead)
cdef bint _give(Call call, list reads, ReadLimits limits) except -1

@cython.locals(
    size=Py_ssize_t, read=GroupRead, reply=ReplyWriter, body=ReplyWriter, given=Py_ssize_t
)
cdef bint _give_in_turn(Call call, list reads, ReadLimits limits) except -1

@cython.locals(stream=StoredStream, group=ConsumerGroup)
cdef ConsumerGroup _group_of(Call call, bytes key, ReadOptions options)

cdef bint _asks_for_new(Arguments arguments, Py_ssize_t at) except -1

cdef _begin_streams(ReplyWriter reply, Py_ssize_t count)

cdef _begin_stream(ReplyWriter reply, bytes key)
