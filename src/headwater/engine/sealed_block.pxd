cimport cython
from cpython cimport array
from headwater.engine.blobs cimport Blob
from headwater.memory_c cimport offset_at
from headwater.packing_c cimport index_entries, pass_entries, unpack_ids
cdef Py_ssize_t MARKED, _MARKS_BYTES


@cython.final
cdef class SealedBlock:
    cdef public str codec
    cdef public bytes wire
    cdef public bytes ids
    cdef public bytes marks
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

@cython.locals(marks=bytearray, index=Py_ssize_t, at=Py_ssize_t)
cpdef bytes marks_of(array.array offsets, Py_ssize_t size)

cdef Py_ssize_t _marked(bytes marks, Py_ssize_t mark) except -1

@cython.locals(mark=Py_ssize_t)
cpdef Py_ssize_t start_in(SealedBlock packed, bytearray data, Py_ssize_t index) except -1

@cython.locals(offsets=array.array)
cpdef array.array offsets_in(SealedBlock packed, bytearray data)
