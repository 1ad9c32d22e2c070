cimport cython


@cython.final
cdef class MemoryAccount:
    cdef public Py_ssize_t nodes
    cdef public Py_ssize_t pending
    cdef public Py_ssize_t groups
    cdef public Py_ssize_t idempotency
    cdef public Py_ssize_t values

    cpdef Py_ssize_t total(self)


cdef Py_ssize_t _TEXT_BYTES

cpdef Py_ssize_t text_bytes(bytes text) except -1
