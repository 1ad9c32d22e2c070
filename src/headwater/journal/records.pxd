cimport cython
from headwater.journal.checksum_c cimport extend, extend_view, place_mask
from headwater.memory_c cimport append_bytes, resize, set_u32, set_u64, u32, u64

cdef long long MAX_RECORD_GROUP_BYTES
cdef bytes _BLANK


@cython.locals(mark=Py_ssize_t)
cpdef Py_ssize_t begin_group(bytearray buffer) except -1

@cython.locals(end=Py_ssize_t, length=Py_ssize_t)
cpdef bint seal_group(
    bytearray buffer, Py_ssize_t mark, unsigned long long turn, unsigned long long now_ms, u32 seed
) except -1

@cython.locals(end=Py_ssize_t, length=Py_ssize_t, checksum=u32)
cdef Py_ssize_t _whole(data, Py_ssize_t offset, tuple header, u32 seed, turn, u32 mask) except -1

cdef u32 _mask(key, u64 offset) except? 0
