cimport cython
from headwater.engine.shared.keyspace_state cimport KeyspaceState


@cython.final
cdef class Keyspace(KeyspaceState):
    cdef public list databases
    cdef public long long hits
    cdef public long long misses
    cdef public long long dirty
    cdef public long long expired_count
    cdef public long long opened_ms
    cdef public long long freed_lazily
    cdef public dict grown

    cpdef next_event_ms(self, bint expiries)
