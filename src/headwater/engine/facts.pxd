cimport cython
from headwater.memory_c cimport append_part, put_u8, put_u32, put_u64, u32, u64


cdef class FactBuffer:
    cdef public bytearray data
    cdef public bint muted

    @cython.locals(data=bytearray)
    cpdef int appended(
        self, u32 sid, u64 ms, u64 seq, bint opens_node, u32 pairs, bytearray wire,
        Py_ssize_t start, Py_ssize_t end,
    ) except -1
