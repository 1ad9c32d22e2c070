cimport cython
from headwater.native.memory_c cimport append_bytes, append_header, append_id, append_part, u64

cdef int _INTEGER, _BULK, _ARRAY, _MAP
cdef bytes _CRLF, _PLUS


@cython.final
cdef class ReplyWriter:
    cdef public bytearray out
    cdef public int resp
    cdef public Py_ssize_t piece_bytes
    cdef public object tail

    cpdef ok(self)
    cpdef simple(self, bytes text)
    cpdef integer(self, long long value)
    cpdef bulk(self, bytes value)
    cpdef id(self, u64 ms, u64 seq)
    cpdef nil(self)
    cpdef nil_array(self)
    cpdef array(self, Py_ssize_t length)
    cpdef map(self, Py_ssize_t pairs)
    cpdef part(self, wire, Py_ssize_t start, Py_ssize_t end)
