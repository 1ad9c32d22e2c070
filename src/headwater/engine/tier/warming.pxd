cimport cython
from headwater.engine.entries.entry_block cimport Span
from headwater.engine.bodies.sealed_block cimport SealedBlock


@cython.locals(found=list, span=Span)
cpdef list first_piece(spans, Py_ssize_t most_bytes)

@cython.locals(found=list, begin=list, span=Span)
cdef list _begin_of(reads, Py_ssize_t most_bytes)

@cython.locals(packed=SealedBlock, taken=Py_ssize_t)
cdef Py_ssize_t _bytes_of(Span span) except -1

@cython.locals(found=dict, span=Span, packed=SealedBlock, first=Py_ssize_t, end=Py_ssize_t)
cpdef dict stored_among(spans)
