from headwater.worker.run.pool cimport Pool

cdef class BatchPool(Pool):
    cdef object _batch
    cdef bint _isolated
    cdef object _clock
    cdef object _arrived
    cdef object _gathering
    cdef Py_ssize_t _busy
