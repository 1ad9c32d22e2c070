cimport cython
from headwater.engine.facts cimport FactBuffer
from headwater.engine.nodes cimport Weighing
from headwater.engine.sealing cimport Sealing


@cython.final
cdef class Keyspace:
    cdef public FactBuffer facts
    cdef public Sealing sealing
    cdef public Weighing weighing
    cdef public list databases
    cdef public dict streams
    cdef public dict groups
    cdef public Py_ssize_t next_sid
    cdef public Py_ssize_t next_gid
    cdef public Py_ssize_t near_sid
    cdef public dict unseen
    cdef public dict delaying
    cdef public list due_notes
    cdef public dict signalled
    cdef public dict touched
    cdef public long long hits
    cdef public long long misses
    cdef public long long dirty
    cdef public long long expired_count
    cdef public dict expiring
    cdef public long long opened_ms
    cdef public list garbage
    cdef public object iid_deadlines
    cdef public unsigned int notified
    cdef public list events

    cpdef next_event_ms(self, bint expiries)
    cpdef note_seen(self, Py_ssize_t gid, Py_ssize_t cid)
    cpdef forget_seen(self, Py_ssize_t gid, Py_ssize_t cid)
