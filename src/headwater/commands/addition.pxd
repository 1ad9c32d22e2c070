# Attributes as C fields; their values are the plain source's own.


cdef class Addition:
    cdef public object key
    cdef public object makes_stream
    cdef public object id
    cdef public object seq_given
    cdef public object iid
    cdef public object trim
    cdef public object wire
    cdef public object pairs
