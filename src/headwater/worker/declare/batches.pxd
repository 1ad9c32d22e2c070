cdef class BatchRun:
    cdef public object entries
    cdef public object rows
    cdef public object task
    cdef public object stopped
    cdef public bint in_thread
    cdef bint _whole
