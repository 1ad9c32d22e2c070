cimport cython
from cpython cimport array
from headwater.commands.call cimport Call, Wait
from headwater.commands.reply_tail cimport write_spans
from headwater.commands.times cimport milliseconds
from headwater.engine.entries.entry_block cimport EntryBlock, Span
from headwater.engine.entries.entry_log cimport EntryLog
from headwater.engine.shared.history cimport StreamHistory
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport append_fours, u64
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter

cdef u64 MAX_U64
cdef tuple GREATEST
cdef Py_ssize_t _BULK_FRAME, MAX_COUNT


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


@cython.final
@cython.freelist(4)
cdef class ReadLimits:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t maxcount
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t entries
    cdef public Py_ssize_t size

    @cython.locals(share=Share)
    cpdef Share share(self, bytes key)
    cpdef Py_ssize_t most(self) except? -1


@cython.final
@cython.freelist(4)
cdef class Share:
    cdef public ReadLimits limits
    cdef public Py_ssize_t most
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t taken
    cdef public Py_ssize_t size

    cdef begin(self, ReadLimits limits, bytes key)
    cpdef Py_ssize_t left(self) except? -1
    cpdef bint full(self) except -1
    cpdef add(self, Py_ssize_t size)
    cpdef close(self)


@cython.final
@cython.freelist(4)
cdef class NewEntries:
    cdef public EntryLog log
    cdef public list spans
    cdef public Py_ssize_t total

    @cython.locals(
        spans=list, before=Py_ssize_t, span=Span, end=Py_ssize_t, block=EntryBlock,
        made=NewEntries, number=Py_ssize_t, size=Py_ssize_t,
    )
    cpdef NewEntries within(self, Share share, Py_ssize_t more)
    @cython.locals(span=Span)
    cpdef write(self, ReplyWriter reply)
    @cython.locals(span=Span, block=EntryBlock, edges=array.array)
    cdef write_four(self, ReplyWriter reply)


@cython.locals(made=NewEntries, ms=u64, seq=u64)
cpdef NewEntries entries_after(StreamHistory stream, tuple last_seen, Py_ssize_t count)

@cython.locals(
    arguments=Arguments, reply=ReplyWriter, options=ReadOptions, keys=list, frozen=dict,
    found=list, missing=list, number=Py_ssize_t, key=bytes, stream=StoredStream, at=Py_ssize_t,
    text=bytes, entries=NewEntries, limits=ReadLimits,
)
cpdef xread(Call call)

@cython.locals(share=Share, entries=NewEntries, left=NewEntries)
cdef list _within(ReadLimits limits, list found)

cpdef begin_streams(ReplyWriter reply, Py_ssize_t count)

cpdef begin_stream(ReplyWriter reply, bytes key)
