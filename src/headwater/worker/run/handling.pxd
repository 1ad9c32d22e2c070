from headwater.worker.declare.owned cimport Owned
from headwater.worker.run.endings cimport Endings
from headwater.worker.run.execute cimport Executor
from headwater.worker.run.slow cimport SlowHandlers

cdef class Handling:
    cdef public object consumer
    cdef public object clock
    cdef public object in_flight
    cdef public Executor executor
    cdef public SlowHandlers slow
    cdef public object expiry
    cdef public Endings endings
    cdef public object observe
    cdef list _starting
