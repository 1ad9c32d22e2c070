cimport cython
from headwater.resp.arguments cimport Arguments

cdef class Scanner:
    cdef public bytearray buffer
    cdef public bint authenticated
    cdef public Py_ssize_t max_bulk_bytes
    cdef Py_ssize_t _begin, _position, _searched, _value, _count, _index
    cdef bint _canonical
    cdef unsigned long long[::1] _starts
    cdef unsigned long long[::1] _ends
    cdef str _error

    cpdef feed(self, data)
    cpdef bint next(self, Arguments arguments) except -1

    @cython.locals(buffer=bytearray, starts="unsigned long long[::1]", ends="unsigned long long[::1]", size=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t, count=Py_ssize_t, room=Py_ssize_t, canonical=bint, start=Py_ssize_t, end=Py_ssize_t, first=int, second=int, length=Py_ssize_t)
    cdef bint _bulks(self) except -1
    cdef _grow(self, Py_ssize_t used)
    @cython.locals(buffer=bytearray, position=Py_ssize_t, digit=int)
    cdef bint _begin_request(self) except -1
    cdef Py_ssize_t _bulk_length(self) except -2
    cdef Py_ssize_t _line_end(self, int mark, str too_big) except -2
    cdef bint _inline(self, Arguments arguments) except -1
