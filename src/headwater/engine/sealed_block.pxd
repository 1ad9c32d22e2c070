cimport cython
from cpython cimport array
from headwater.engine.blobs cimport Blob
from headwater.packing_c cimport index_entries, pass_entries, unpack_ids

@cython.final
cdef class SealedBlock:
    cdef public str codec
    cdef public bytes wire
    cdef public bytes ids
    cdef public int size
    cdef public int count
    cdef public unsigned long long first_ms
    cdef public unsigned long long first_seq
    cdef public bytearray data
    cdef public array.array offsets
    cdef public Py_ssize_t found
    cdef public Py_ssize_t found_at
    cdef public Blob blob
    cdef public int holds
    cdef object __weakref__


@cython.locals(data=bytearray)
cpdef bytearray unpacked(SealedBlock packed, codec, bytes wire)

@cython.locals(ids=array.array)
cpdef array.array unpacked_ids(SealedBlock packed)

cpdef Py_ssize_t start_in(SealedBlock packed, bytearray data, Py_ssize_t index) except -1

@cython.locals(offsets=array.array)
cpdef array.array offsets_in(SealedBlock packed, bytearray data)
