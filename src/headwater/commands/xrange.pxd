cimport cython
from headwater.commands.call cimport Call
from headwater.commands.reply_tail cimport write_spans
from headwater.engine.entries.entry_block cimport Span
from headwater.engine.entries.entry_log cimport EntryLog, any_stored
from headwater.engine.streams.stream cimport StoredStream
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter


@cython.locals(stream=StoredStream)
cpdef xlen(Call call)

cpdef xrange(Call call)

cpdef xrevrange(Call call)

@cython.locals(
    arguments=Arguments, reply=ReplyWriter, index=Py_ssize_t, stream=StoredStream, log=EntryLog,
    spans=list, span=Span, total=Py_ssize_t, count=Py_ssize_t,
)
cdef _range(Call call, Py_ssize_t start_at, Py_ssize_t end_at, bint backward)
