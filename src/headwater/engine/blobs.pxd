cimport cython


@cython.final
cdef class SegmentUse:
    cdef dict _live
    cdef public object left


@cython.final
cdef class Blob:
    cdef SegmentUse _use
    cdef public long long segment
    cdef long long _offset
    cdef long long _head_bytes
    cdef long long _body_bytes
    cdef public bint shared

    cpdef place(self)
    cdef Py_ssize_t _size(self) except -1
