cimport cython


@cython.final
cdef class Subscriptions:
    cdef public dict channels
    cdef public dict patterns
    cdef public dict shard_channels
    cdef public Py_ssize_t held_bytes
    cdef public bint active
    cdef public bint monitoring
    cdef public bint cut_off
