cimport cython

@cython.final
cdef class Owned:
    cdef object _delivery
    cdef object _member
    cdef public object additions
    cdef public double arrived
    cdef public object batch
    cdef public double began
    cdef public object delivered
    cdef public bytes id
    cdef public bint in_thread
    cdef public bint lost
    cdef public object record
    cdef readonly object state
    cdef public object stopped
    cdef public object task

    cpdef enter(self, state)
    cpdef handled(self)
