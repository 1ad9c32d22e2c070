# Attributes as C fields; their values are the plain source's own.


cdef class Keyspace:
    cdef public object facts
    cdef public object databases
    cdef public object streams
    cdef public object groups
    cdef public object next_sid
    cdef public object next_gid
    cdef public object unseen
    cdef public object delaying
    cdef public object due_notes
    cdef public object signalled
    cdef public object dirty
    cdef public object expired_count
    cdef public object expiring
    cdef public object opened_ms
    cdef public object garbage
    cdef public object iid_deadlines
    cdef public object notified
    cdef public object events
