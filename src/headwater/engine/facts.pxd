# Attributes as C fields; their values are the plain source's own.


cdef class FactBuffer:
    cdef public object data
    cdef public object muted
