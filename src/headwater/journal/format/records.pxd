cimport cython
from headwater.journal.format.checksum_c cimport extend, extend_view, place_mask
from headwater.native.memory_c cimport append_bytes, resize, set_u32, set_u64, u32, u64, u64_at
from headwater.native.views_c cimport view_u32, view_u64

cdef long long MAX_RECORD_GROUP_BYTES
cdef bytes _BLANK
cdef Py_ssize_t _HEADER_BYTES
cdef int _LOCAL_KIND
cdef u64 _LENGTH_BITS


@cython.locals(mark=Py_ssize_t)
cpdef Py_ssize_t begin_group(bytearray buffer) except -1

@cython.locals(end=Py_ssize_t, length=Py_ssize_t)
cpdef bint seal_group(
    bytearray buffer, Py_ssize_t mark, unsigned long long turn, unsigned long long now_ms, u32 seed
) except -1

@cython.locals(counted=Py_ssize_t, length=Py_ssize_t)
cpdef Py_ssize_t counted_bytes(bytearray buffer, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(end=Py_ssize_t, length=Py_ssize_t, checksum=u32)
cpdef Py_ssize_t whole_group(
    data, Py_ssize_t offset, u32 seed, unsigned long long turn, u32 mask
) except -1

cpdef u32 checksum_of(data, u32 crc=*) except? 0

cdef u32 _mask(key, u64 offset) except? 0
