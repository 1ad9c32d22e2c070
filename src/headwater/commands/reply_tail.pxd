cimport cython
from cpython cimport array
from headwater.engine.entries.entry_block cimport EntryBlock, Span
from headwater.engine.bodies.sealed_block cimport SealedBlock
from headwater.native.memory_c cimport offset_at
from headwater.resp.replies cimport ReplyWriter


@cython.locals(at=Py_ssize_t, span=Span)
cpdef write_spans(ReplyWriter reply, list spans, bint backward)

@cython.locals(edges=array.array, index=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t)
cdef write_span(ReplyWriter reply, Span span, bint backward)

@cython.locals(packed=SealedBlock)
cdef bint _readable(EntryBlock block) except -1
