cimport cython
from headwater.clock cimport passed_ns, wall_ns

cdef long long _NS_A_MS
cdef double _NS_A_SECOND


@cython.final
cdef class TurnClock:
    cdef object _clock
    cdef bint _is_system
    cdef long long _wall_ahead_ns
    cdef public double turn_began
    cdef public long long began_ns
    cdef public long long ended_ns
    cdef public long long now_ms

    @cython.locals(wall="long long")
    cpdef int begin_turn(self) except -1
    cpdef int begin_command(self) except -1
    cpdef int begin_again(self) except -1
