from headwater.engine.entries.entry_log cimport EntryLog
from headwater.engine.shared.keyspace_state cimport KeyspaceState
from headwater.engine.shared.signals cimport KeySignals
from headwater.native.memory_c cimport u64


cdef class StreamHistory:
    cdef public KeyspaceState keyspace
    cdef public KeySignals db
    cdef public bytes key
    cdef public Py_ssize_t sid
    cdef public EntryLog log
    cdef public u64 last_ms
    cdef public u64 last_seq
    cdef public tuple max_deleted_id
    cdef public tuple max_trimmed_id
    cdef public long long entries_added
