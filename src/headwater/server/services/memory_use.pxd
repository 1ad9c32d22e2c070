cimport cython
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.engine.tier.sealing cimport Sealing
from headwater.server.services.turn_clock cimport TurnClock
from headwater.server.session.output cimport ClientMemory

cdef long long _INTERVAL_NS, _CLIENT_NS
cdef Py_ssize_t _CHECKS, _HUNDRED


@cython.final
cdef class MemoryUse:
    cdef public Keyspace keyspace
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t peak
    cdef public bint was_exceeded
    cdef public bint is_tight
    cdef public bint is_pressing
    cdef object _clients
    cdef ClientMemory _held
    cdef object _services
    cdef TurnClock _times
    cdef Py_ssize_t _ample
    cdef Py_ssize_t _tables
    cdef Py_ssize_t _others
    cdef Py_ssize_t _checks
    cdef long long _measured_ns

    @cython.locals(used=Py_ssize_t, tight=bint)
    cpdef bint exceeded(self) except -1
    @cython.locals(sealing=Sealing, entries=Py_ssize_t, used=Py_ssize_t)
    cdef Py_ssize_t _sum(self) except -1
