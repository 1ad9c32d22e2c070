cimport cython
from headwater.common.clock cimport passed_ns, wall_ns
from headwater.commands.times cimport WallOffset

cdef long long _NS_A_MS
cdef double _NS_A_SECOND
cdef long long _TOLERANCE_NS
cdef long long _IN_ONE_GO_NS


@cython.final
cdef class TurnClock:
    cdef public object clock
    cdef bint _is_system
    cdef public WallOffset wall
    cdef public object jumps
    cdef long long _wall_ahead_ns
    cdef long long _steady_ahead_ns
    cdef double _zero_s
    cdef long long _zero_ms
    cdef public double turn_began
    cdef public long long began_ns
    cdef public long long ended_ns
    cdef public long long now_ms

    @cython.locals(wall="long long", moved="long long")
    cpdef int begin_turn(self) except -1
    cpdef int begin_command(self) except -1
    cpdef int begin_again(self) except -1
    cpdef long long now(self) except *
    cpdef long long wall_now(self) except *
    cpdef double monotonic_at(self, long long at_ms) except? -1
    cdef long long _passed(self) except *
    cdef long long _wall(self) except *
    @cython.locals(
        ahead="long long", closest="long long",
        before="long long", wall="long long", after="long long",
    )
    cdef long long _measured(self) except *
    @cython.locals(ahead="long long", moved="long long")
    cdef int _look(self) except -1
