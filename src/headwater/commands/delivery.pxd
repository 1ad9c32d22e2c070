# Attributes as C fields; their values are the plain source's own.


cdef class NewEntries:
    cdef public object spans
    cdef public object total


cdef class GroupRead:
    cdef public object call
    cdef public object key
    cdef public object group
    cdef public object name


cdef class Delivery(GroupRead):
    cdef public object noack
    cdef public object claim_ms
    cdef public object claims
    cdef public object entries


cdef class History(GroupRead):
    cdef public object after
    cdef public object found
