# Attributes as C fields that hold Python objects.


cdef class _Deletion:
    cdef public object arguments
    cdef public object mode
    cdef public object start
    cdef public object count
