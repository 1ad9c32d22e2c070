cimport cython
from cpython cimport array
from headwater.native.memory_c cimport (
    put_i64, put_id, put_kind, put_text, put_text_part, put_u8, put_u16, put_u32, put_u64, put_words,
    u32, u64,
)


@cython.final
cdef class FactBuffer:
    cdef public bytearray data
    cdef public bint muted

    @cython.locals(data=bytearray)
    cpdef int string_set(self, unsigned char db, bytes key, bytes value) except -1
    cpdef int appended(
        self, u32 sid, u64 ms, u64 seq, bint opens_node, u32 pairs, bytearray wire,
        Py_ssize_t start, Py_ssize_t end,
    ) except -1
    cpdef int delivered(
        self, u32 gid, u32 cid, u64 time, tuple first, tuple last, u32 count,
        long long entries_read, bint noack,
    ) except -1
    cpdef acknowledged(self, u32 gid, array.array ids)
    cpdef owned(
        self, u32 gid, u32 cid, long long seen_time, long long active_time, array.array records
    )
    cpdef released(self, u32 gid, array.array records)
    cpdef delayed(self, u32 gid, array.array records)
    cpdef came_due(self, u32 gid, array.array ids)
    cdef int _keyed(self, int kind, unsigned char db, bytes key) except -1
    cdef _group_list(self, int kind, u32 gid, array.array records, Py_ssize_t words)
