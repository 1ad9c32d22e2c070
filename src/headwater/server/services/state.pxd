cimport cython


@cython.final
cdef class NodeState:
    cdef public long long started_ms
    cdef public object poisoned
    cdef public bint stopping
    cdef public bint expires_by_itself
    cdef public bint reload_wanted
