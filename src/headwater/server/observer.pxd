cimport cython
from headwater.resp.arguments cimport Arguments


cdef class CommandFigures:
    cdef public long long calls
    cdef public long long nanoseconds
    cdef public long long rejected
    cdef public long long failed
    cdef public object histogram


cdef class Observer:
    cdef public object commands
    cdef public dict errors
    cdef public object slowlog
    cdef public object latency
    cdef public object monitors
    cdef public bint timing
    cdef public long long look_ns
    cdef public bint tracks
    cdef public object expired_before

    cpdef CommandFigures figures_of(self, bytes name)
