from headwater.worker.declare.owned cimport Owned
from headwater.worker.settle.in_flight cimport InFlight

cdef class Endings:
    cdef public object telemetry
    cdef public object policy
    cdef object _consumer
    cdef object _hooks
    cdef object _clock
    cdef InFlight _in_flight
    cdef object _reports
    cdef bint _watched
    cpdef returned(self, Owned owned, additions=*)
    cpdef end(self, Owned owned, outcome)
