from headwater.worker.declare.owned cimport Owned

cdef class Settler:
    cdef Py_ssize_t _most
    cdef object _how
    cdef object _clock
    cdef object _send
    cdef object _done
    cdef object _queue
    cdef object _ready
    cdef object _timer
    cdef Py_ssize_t _in_flight
    cdef dict _alone
    cdef object _busy_since
    cdef object _empty
    cpdef add(self, one)
