cimport cython
from cpython cimport array
from headwater.engine.bodies.blobs cimport Blob
from headwater.engine.bodies.block_account cimport BlockAccount
from headwater.engine.bodies.sealed_block cimport SealedBlock, marks_of
from headwater.native.memory_c cimport word_at


@cython.final
cdef class Sealing(BlockAccount):
    cdef Py_ssize_t _asked
    cdef Py_ssize_t _in_jobs

    cpdef bint due(self) except -1


@cython.locals(ids=array.array, count=Py_ssize_t, packed=SealedBlock)
cdef object _job(sealing, block, Py_ssize_t booked)
