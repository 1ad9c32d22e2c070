# Attributes as C fields; their values are the plain source's own.


cdef class _Plan:
    cdef public object gone
    cdef public object bound
    cdef public object ids
    cdef public object stays


cdef class Trim:
    cdef public object maxlen
    cdef public object minid
    cdef public object approximate
    cdef public object limit
    cdef public object mode
