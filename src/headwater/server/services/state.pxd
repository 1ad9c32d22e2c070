cimport cython


@cython.final
cdef class NodeState:
    cdef public long long started_ms
    cdef public bint restricted
    cdef public bint hands_over
    cdef public bint synchronous
    cdef public object loading
    cdef public bint replica
    cdef public bint counts_replicas
    cdef public object poisoned
    cdef public double rests_until
    cdef public bint stopping
    cdef public long long checkpoint_at
    cdef public bint writes_image_at_stop
    cdef public bint expires_by_itself
    cdef public bint reload_wanted
