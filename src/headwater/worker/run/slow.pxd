from headwater.worker.declare.owned cimport Owned

cdef class SlowHandlers:
    cdef object _consumer
    cdef object _clock
    cdef object _stack
    cdef double _ended_at
    cdef bint _said_hung
    cdef public object last
    cdef dict _running
    cdef object _timer
    cdef object _samples
    cdef double _usual
    cdef Py_ssize_t _returned
    cdef double _took
    cpdef began(self, Owned owned)
    cpdef ended(self, Owned owned, bint returned)
