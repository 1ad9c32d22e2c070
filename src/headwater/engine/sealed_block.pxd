cimport cython
from cpython cimport array
from headwater.engine.blobs cimport Blob
from headwater.packing_c cimport index_entries

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
    cdef public Blob blob
    cdef public int holds
    cdef object __weakref__


@cython.locals(data=bytearray)
cpdef bytearray unpacked(SealedBlock packed, codec, bytes wire)

@cython.locals(offsets=array.array)
cpdef array.array offsets_in(SealedBlock packed, bytearray data)
