cimport cython
from cpython cimport array
from headwater.engine.blobs cimport Blob, SegmentUse
from headwater.engine.bodies cimport Bodies
from headwater.engine.sealed_block cimport SealedBlock, marks_of
from headwater.memory_c cimport word_at


@cython.final
cdef class Sealing:
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
    cdef Py_ssize_t _asked
    cdef Py_ssize_t _in_jobs

    cpdef book(self, int books, Py_ssize_t size)
    cpdef bint due(self) except -1


@cython.locals(ids=array.array, count=Py_ssize_t, packed=SealedBlock)
cdef object _job(block, Py_ssize_t booked)
