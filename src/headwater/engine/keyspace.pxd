# Attributes as C fields; their values are the plain source's own.


cdef class WatchToken:
    cdef public object broken
    cdef public object keys


cdef class Keyspace:
    cdef public object facts
    cdef public object databases
    cdef public object streams
    cdef public object groups
    cdef public object next_sid
    cdef public object next_gid
    cdef public object unseen
    cdef public object delaying
    cdef public object signalled
    cdef public object dirty
    cdef public object expiry_notes


cdef class Database:
    cdef public object keyspace
    cdef public object index
    cdef public object values
    cdef public object order
    cdef public object expiries
    cdef public object waited
    cdef public object watched
