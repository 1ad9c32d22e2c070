cimport cython
from cpython cimport array
from headwater.packing_c cimport index_entries

@cython.final
cdef class SealedBlock:
    cdef public str codec
    cdef public bytes wire
    cdef public bytes ids
    cdef public Py_ssize_t size
    cdef public Py_ssize_t count
    cdef public unsigned long long first_ms
    cdef public unsigned long long first_seq
    cdef public bytearray data
    cdef public array.array offsets


@cython.locals(data=bytearray, offsets=array.array)
cpdef tuple unpacked(SealedBlock packed, codec)


@cython.final
cdef class Sealing:
    cdef public Py_ssize_t block_bytes
    cdef public Py_ssize_t least
    cdef public Py_ssize_t most
    cdef public Py_ssize_t lag
    cdef public Py_ssize_t budget
    cdef public Py_ssize_t hot_bytes
    cdef public Py_ssize_t kept_bytes
    cdef public Py_ssize_t sealed_bytes
    cdef public Py_ssize_t sealed_size
    cdef public Py_ssize_t sealed_count
    cdef public Py_ssize_t opened_count
    cdef public str codec
    cdef public object order
    cdef Py_ssize_t _in_jobs
    cdef dict _codecs
    cdef object _open

    cpdef book(self, int books, Py_ssize_t size)
    cpdef bint due(self) except -1
    @cython.locals(data=bytearray, offsets=array.array)
    cpdef open(self, SealedBlock packed)
