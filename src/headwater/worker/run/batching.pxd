from headwater.worker.run.execute cimport Executor
from headwater.worker.run.slow cimport SlowHandlers

cdef class BatchHandler:
    cdef object _consumer
    cdef Executor _executor
    cdef object _in_flight
    cdef object _policy
    cdef object _clock
    cdef SlowHandlers _slow
    cdef object _telemetry
    cdef object _end
    cdef object _crashed
    cdef object _observe
