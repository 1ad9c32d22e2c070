# Attributes as C fields; their values are the plain source's own.


cdef class Stream:
    cdef public object keyspace
    cdef public object db
    cdef public object key
    cdef public object sid
    cdef public object log
    cdef public object nodes
    cdef public object last_id
    cdef public object max_deleted_id
    cdef public object max_gone_id
    cdef public object entries_added
    cdef public object groups
    cdef public object used_ms
    cdef public object idempotency
