cdef double LATE_SECONDS


cdef class Flusher:
    cdef object __weakref__
    cdef public long long delayed
    cdef public long long fsyncs
    cdef public long long synced_turn
    cdef object _files
    cdef object _clock
    cdef object _log
    cdef object _on_failure
    cdef double _interval
    cdef object _changed
    cdef object _stopped
    cdef object _thread
    cdef tuple _written
    cdef tuple _taken
    cdef object _synced
    cdef object _since
    cdef bint _failed
    cdef double _looked

    cpdef wrote(self, long long number, long long end, long long turn)
    cpdef take_synced(self)
    cpdef wait_if_late(self)
