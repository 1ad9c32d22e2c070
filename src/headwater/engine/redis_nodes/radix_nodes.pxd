cimport cython
from headwater.native.memory_c cimport u64

cdef int KEY_BYTES, _OUTSIDE


@cython.final
cdef class RadixCount:
    cdef public Py_ssize_t count
    cdef public list rest

    @cython.locals(rest=list, last=int, before=int, parent=int)
    cpdef add(self, int depth)


@cython.locals(whole=RadixCount, part=RadixCount, at=Py_ssize_t)
cpdef Py_ssize_t radix_nodes(list parts, list between) except -1

@cython.locals(differing=u64, found=int)
cpdef int common_bytes(u64 ms, u64 seq, u64 other_ms, u64 other_seq) noexcept

cdef int _leaf(int depth) noexcept
