cimport cython
from cpython cimport array
from headwater.engine.bodies.blobs cimport Blob
from headwater.native.memory_c cimport offset_at
from headwater.native.packing_c cimport index_entries, pass_entries, unpack_ids
cdef Py_ssize_t MARKED, _MARKS_BYTES, _PARTS_MOST, _ROW_BYTES


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
    cdef public bytes data
    cdef public bytes rest
    cdef public int opened_from
    cdef public int opened_to
    cdef public int opened_at
    cdef public array.array offsets
    cdef public Py_ssize_t found
    cdef public Py_ssize_t found_at
    cdef public Blob blob
    cdef public int holds
    cdef public long long opened
    cdef public bint again
    cdef object __weakref__

    cpdef bint has_open(self, Py_ssize_t first, Py_ssize_t end) except -1
    cpdef open_all(self, bytes data)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t open_bytes(self) except -1
    cpdef close(self)


@cython.locals(parts=Py_ssize_t, whole=bint, data=bytes)
cpdef unpack(SealedBlock packed, codec, bytes body, Py_ssize_t first, Py_ssize_t end)

cpdef bytes unpacked(SealedBlock packed, codec, bytes body)

cpdef Py_ssize_t parts_in(SealedBlock packed, bytes body) except -1

@cython.locals(
    before=bytes, pieces=list, piece=bytes, opened_from=Py_ssize_t, opened_to=Py_ssize_t, opened_at=Py_ssize_t,
    rows_end=Py_ssize_t, frame_at=Py_ssize_t, row=Py_ssize_t, entry=Py_ssize_t, at=Py_ssize_t, size=Py_ssize_t,
    next_entry=Py_ssize_t, next_at=Py_ssize_t,
)
cdef _unpack_parts(
    SealedBlock packed, codec, bytes body, Py_ssize_t parts, Py_ssize_t first, Py_ssize_t end
)

cdef Py_ssize_t _u16(bytes text, Py_ssize_t at) except -1

@cython.locals(ids=array.array)
cpdef array.array unpacked_ids(SealedBlock packed)

@cython.locals(marks=bytearray, index=Py_ssize_t, at=Py_ssize_t)
cpdef bytes marks_of(array.array offsets, Py_ssize_t size)

cdef Py_ssize_t _marked(bytes marks, Py_ssize_t mark) except -1

@cython.locals(mark=Py_ssize_t, passed=Py_ssize_t)
cpdef Py_ssize_t start_in(SealedBlock packed, Py_ssize_t index) except -1

@cython.locals(offsets=array.array)
cpdef array.array offsets_in(SealedBlock packed, data)
