# Attributes as C fields; their values are the plain source's own.


cdef class WatchToken:
    cdef public object broken
    cdef public object keys


cdef class Database:
    cdef public object keyspace
    cdef public object index
    cdef public object values
    cdef public object order
    cdef public object expiries
    cdef public object expiry_notes
    cdef public object used
    cdef public object waited
    cdef public object watched
