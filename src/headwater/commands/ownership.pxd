# Attributes as C fields; their values are the plain source's own.


cdef class ClaimOptions:
    cdef public object time
    cdef public object count
    cdef public object force
    cdef public object justid
    cdef public object last_id


cdef class _Claims:
    cdef public object group
    cdef public object now_ms
    cdef public object min_idle
    cdef public object records
    cdef public object wires
    cdef public object gone
    cdef public object _state
