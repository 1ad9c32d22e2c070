cimport cython

cpdef Py_ssize_t blob_size(Py_ssize_t head_bytes, Py_ssize_t body_bytes) except -1


@cython.final
cdef class SegmentUse:
    cdef dict _live
    cdef public object left


@cython.final
cdef class Blob:
    cdef SegmentUse _use
    cdef unsigned long long _offset
    cdef public unsigned int segment
    cdef unsigned int _head_bytes
    cdef unsigned int _body_bytes
    cdef public bint shared

    cpdef place(self)
    cdef Py_ssize_t _size(self) except -1
