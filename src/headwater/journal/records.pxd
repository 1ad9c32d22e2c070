cimport cython
from headwater.memory_c cimport append_bytes, cut, resize, set_u32, set_u64

cdef long long MAX_RECORD_GROUP_BYTES
cdef bytes _BLANK


@cython.locals(mark=Py_ssize_t)
cpdef Py_ssize_t begin_group(bytearray buffer) except -1

@cython.locals(end=Py_ssize_t, length=long)
cpdef bint seal_group(
    bytearray buffer, Py_ssize_t mark, unsigned long long turn, unsigned long long now_ms, seed
) except -1
