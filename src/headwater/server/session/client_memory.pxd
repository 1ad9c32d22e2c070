cimport cython


@cython.final
cdef class ClientMemory:
    cdef public Py_ssize_t free_bytes
    cdef public Py_ssize_t held_bytes
