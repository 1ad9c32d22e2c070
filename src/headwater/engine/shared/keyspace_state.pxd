from headwater.engine.facts.facts cimport FactBuffer
from headwater.engine.accounts.memory_account cimport MemoryAccount
from headwater.engine.redis_nodes.nodes cimport Weighing
from headwater.engine.tier.sealing cimport Sealing


cdef class KeyspaceState:
    cdef public FactBuffer facts
    cdef public Sealing sealing
    cdef public MemoryAccount memory
    cdef public Weighing weighing
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
    cdef public unsigned int notified
    cdef public list events
    cdef public dict expiring
    cdef public list garbage
    cdef public list unread_blobs
    cdef public set named_segments
    cdef public object iid_deadlines

    cpdef note_seen(self, Py_ssize_t gid, Py_ssize_t cid)
    cpdef forget_seen(self, Py_ssize_t gid, Py_ssize_t cid)
