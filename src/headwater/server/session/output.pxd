cimport cython
from headwater.native.memory_c cimport cut, empty
from headwater.resp.replies cimport ReplyWriter

cdef Py_ssize_t _KEPT_BYTES


@cython.final
cdef class ClientMemory:
    cdef public Py_ssize_t free_bytes
    cdef public Py_ssize_t held_bytes


@cython.final
cdef class Output:
    cdef public ReplyWriter reply
    cdef public bytearray outbox
    cdef public bytearray released
    cdef public bytearray pushes
    cdef public long long released_bytes
    cdef public long long taken_bytes
    cdef public object tail
    cdef public bint stalled
    cdef public bint changed
    cdef public Py_ssize_t held
    cdef public long long shown_turn
    cdef ClientMemory _memory
    cdef Py_ssize_t _kept_bytes
    cdef bint _closed

    cpdef bint takes_more(self, long long ahead_bytes) except -1
    cpdef bint release(self) except -1
    cpdef bytearray take(self)
    cpdef bytes take_bytes(self)
    @cython.locals(size=Py_ssize_t)
    cpdef int empty_released(self) except -1
    @cython.locals(more=Py_ssize_t)
    cdef bint _may_keep(self, Py_ssize_t size) except -1
