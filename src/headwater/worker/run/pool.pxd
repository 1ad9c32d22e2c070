from headwater.worker.declare.owned cimport Owned

cdef class Pool:
    cdef public object _size
    cdef public object _run
    cdef public object _idle
    cdef public object _changes
    cdef public object _buffer
    cdef public object _arrivals
    cdef public object _slots
    cdef public set running
    cdef public bint overfull
    cdef public object _hold
    cdef public object _timer
    cdef public dict _handed_back
    cdef public object fresh
