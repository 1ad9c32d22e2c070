# Attributes as C fields; their values are the plain source's own.


cdef class _Deletion:
    cdef public object arguments
    cdef public object mode
    cdef public object start
    cdef public object count
