cimport cython
from headwater.commands.dispatch cimport KnownCommand
from headwater.resp.arguments cimport Arguments


@cython.final
cdef class CommandStatistics:
    cdef public long long calls
    cdef public long long nanoseconds
    cdef public long long rejected
    cdef public long long failed
    cdef public object histogram


@cython.final
cdef class Observer:
    cdef object _faults
    cdef public object commands
    cdef list _numbered
    cdef public dict errors
    cdef public long long error_count
    cdef public long long forgotten_codes
    cdef public object slowlog
    cdef public object latency
    cdef public object collections
    cdef public object monitors
    cdef public bint timing
    cdef public long long record_ns
    cdef public bint times_commits
    cdef public bint tracks
    cdef public object expired_before

    @cython.locals(statistics=CommandStatistics)
    cpdef CommandStatistics statistics_of(self, KnownCommand known)
