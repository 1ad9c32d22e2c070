cimport cython
from headwater.engine.keyspace_state cimport KeyspaceState


@cython.final
cdef class Database:
    cdef public KeyspaceState keyspace
    cdef public Py_ssize_t index
    cdef public dict values
    cdef public object order
    cdef public dict expiries
    cdef public list expiry_notes
    cdef public dict used
    cdef public dict awaited
    cdef public dict watched

    cpdef lookup(self, bytes key, long long now_ms)
    cpdef use(self, bytes key, long long now_ms)
    cpdef set_string(self, bytes key, bytes value)
    cpdef signal(self, bytes key)
    cpdef touch(self, bytes key)
