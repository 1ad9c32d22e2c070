# The attributes are C fields that hold Python objects.
cimport cython


@cython.final
cdef class KeyOrder:
    cdef public object _present
    cdef public object names
    cdef public object numbers
    cdef public object next_number
    cdef public object stale_bytes
