from headwater.worker.declare.owned cimport Owned
from headwater.worker.settle.settle cimport Settler

cdef class InFlight:
    cdef public object changes
    cdef public object counters
    cdef public dict owned
    cdef public object session
    cdef public object reading
    cdef public Settler settler
    cdef object _hooks
    cdef object _retrying
    cdef object _sender
    cdef object _rejoining
    cdef object _tasks
    cpdef acknowledge(self, Owned owned, additions=*)
    cpdef bint owns(self, Owned owned)
