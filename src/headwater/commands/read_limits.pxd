# Attributes as C fields; their values are the plain source's own.


cdef class ReadLimits:
    cdef public object count
    cdef public object maxcount
    cdef public object maxsize
    cdef public object entries
    cdef public object size


cdef class Share:
    cdef public object limits
    cdef public object most
    cdef public object maxsize
    cdef public object taken
    cdef public object size
