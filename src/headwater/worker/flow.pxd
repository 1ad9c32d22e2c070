from headwater.worker.declare.owned cimport Owned
from headwater.worker.run.execute cimport Executor
from headwater.worker.settle.in_flight cimport InFlight
from headwater.worker.run.slow cimport SlowHandlers

cdef class Flow:
    cdef public object consumer
    cdef public bint joined
    cdef public object telemetry
    cdef public InFlight in_flight
    cdef public Executor executor
    cdef public SlowHandlers slow
    cdef object _clock
    cdef object _changes
    cdef object _reports
    cdef object _observe
    cdef object _policy
    cdef bint _watched
    cdef public object expiry
    cdef object _run_in_time
    cdef public object pool
    cdef public object fetcher
    cdef public object quarantine
    cdef public object order
    cdef public object gate
    cpdef end(self, Owned owned, outcome)
