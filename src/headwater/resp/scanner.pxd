cimport cython
from cpython cimport array
from headwater.native.memory_c cimport put_bytes, put_part, resize, scan_bulks, set_word, u64, word_at
from headwater.resp.arguments cimport Arguments

cdef int _CR, _LF, _STAR, _DOLLAR, _ZERO
cdef Py_ssize_t _TEN, _KEPT_BYTES, _RESTING_BYTES
cdef array.array _NO_OFFSETS


@cython.final
cdef class Scanner:
    cdef public bytearray buffer
    cdef public bint authenticated
    cdef public Py_ssize_t max_bulk_bytes
    cdef Py_ssize_t _size, _begin, _position, _searched, _value, _count, _index
    cdef bint _canonical
    cdef array.array _starts
    cdef array.array _ends
    cdef str _error

    cpdef Py_ssize_t unread(self)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t)
    cpdef int feed(self, data) except -1
    cpdef int feed_part(self, bytearray data, Py_ssize_t size) except -1
    cpdef int adopt(self, bytearray data) except -1
    cpdef rest(self)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _make_room(self, Py_ssize_t size) except -1
    cdef int _empty(self) except -1
    @cython.locals(starts=array.array, ends=array.array, index=Py_ssize_t)
    cdef int _drop(self, Py_ssize_t dropped) except -1
    @cython.locals(position=Py_ssize_t, fresh=Arguments)
    cpdef bint next(self, Arguments arguments) except -1

    @cython.locals(
        buffer=bytearray, starts=array.array, ends=array.array, size=Py_ssize_t,
        position=Py_ssize_t, index=Py_ssize_t, count=Py_ssize_t, room=Py_ssize_t, more=array.array,
        canonical=bint, found=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t,
    )
    cdef bint _bulks(self, Arguments arguments) except -1
    cdef _refusal(self, str text)
    @cython.locals(buffer=bytearray, position=Py_ssize_t, stop=Py_ssize_t, first=int, second=int, line_end=Py_ssize_t)
    cdef bint _begin_request(self) except -1
    cdef Py_ssize_t _bulk_length(self) except -2
    cdef Py_ssize_t _line_end(self, int mark, str too_big) except -2
    cdef bint _inline(self, Arguments arguments) except -1
