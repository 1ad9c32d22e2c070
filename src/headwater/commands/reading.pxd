# Attributes as C fields; their values are the plain source's own.


cdef class ReadOptions:
    cdef public object count
    cdef public object block_ms
    cdef public object claim_ms
    cdef public object maxcount
    cdef public object maxsize
    cdef public object noack
    cdef public object group
    cdef public object consumer
    cdef public object keys_at
    cdef public object streams
    cdef public object _grouped
    cdef public object _now_ms
