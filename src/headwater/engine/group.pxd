# Attributes as C fields; their values are the plain source's own.


cdef class Consumer:
    cdef public object cid
    cdef public object name
    cdef public object seen_time
    cdef public object active_time
    cdef public object pending


cdef class ConsumerGroup:
    cdef public object stream
    cdef public object keyspace
    cdef public object facts
    cdef public object name
    cdef public object gid
    cdef public object last_id
    cdef public object entries_read
    cdef public object consumers
    cdef public object by_cid
    cdef public object next_cid
    cdef public object pel
    cdef public object order
    cdef public object released
    cdef public object delayed
    cdef public object due_order
