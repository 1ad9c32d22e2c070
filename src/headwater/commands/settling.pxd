# Attributes as C fields; their values are the plain source's own.


cdef class _IDs:
    cdef public object start
    cdef public object count


cdef class _Settlement:
    cdef public object mode
    cdef public object delay_ms
    cdef public object additions
    cdef public object ids
