from headwater.engine.shared.keyspace_state cimport KeyspaceState


cdef class KeySignals:
    cdef public KeyspaceState keyspace
    cdef public Py_ssize_t index
    cdef public dict awaited
    cdef public dict watched

    cpdef signal(self, bytes key)
    cpdef touch(self, bytes key)
