# Attributes as C fields; their values are the plain source's own.
cimport cython


@cython.final
cdef class KeyOrder:
    cdef public object _present
    cdef public object names
    cdef public object numbers
    cdef public object next_number
