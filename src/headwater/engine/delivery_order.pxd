# Attributes as C fields; their values are the plain source's own.


cdef class DeliveryOrder:
    cdef public object pel
    cdef public object times
    cdef public object ids
    cdef public object counts
    cdef public object covered
    cdef public object index_time
    cdef public object index
