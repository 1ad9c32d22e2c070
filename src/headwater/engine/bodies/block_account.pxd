from headwater.engine.bodies.blobs cimport SegmentUse
from headwater.engine.bodies.bodies cimport Bodies


cdef class BlockAccount:
    cdef public Py_ssize_t block_bytes
    cdef public Py_ssize_t least
    cdef public Py_ssize_t most
    cdef public Py_ssize_t lag
    cdef public Py_ssize_t budget
    cdef public Py_ssize_t hot_bytes
    cdef public Py_ssize_t kept_bytes
    cdef public Py_ssize_t sealed_bytes
    cdef public Py_ssize_t sealed_size
    cdef public Py_ssize_t sealed_count
    cdef public Py_ssize_t stored_count
    cdef public Py_ssize_t stored_size
    cdef public str codec
    cdef public object order
    cdef public bint storing
    cdef public object unstored
    cdef public Bodies bodies
    cdef public SegmentUse use

    cpdef book(self, int books, Py_ssize_t size)
