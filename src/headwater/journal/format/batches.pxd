cimport cython
from cpython cimport array
from headwater.journal.format.checksum_c cimport place_mask
from headwater.journal.format.records cimport whole_group
from headwater.native.memory_c cimport push_word, u32, u64
from headwater.native.views_c cimport view_u8, view_u32, view_u64

cdef long long ENGINE_KINDS, GROUP_HEADER_BYTES, LOCAL_KIND, SYNCED_GROUP_BYTES
cdef int _SYNCED_KIND


cdef class GroupScanner:
    cdef public object data
    cdef public long long base
    cdef public u64 number
    cdef u32 seed
    cdef public u64 turn
    cdef bint binds
    cdef u32 key
    cdef public Py_ssize_t offset
    cdef public u64 last_now_ms
    cdef public u64 synced_number
    cdef public u64 synced_offset
    cdef public bint clean
    cdef public u64 counted

    @cython.locals(
        base=u64, seed=u32, offset=Py_ssize_t, turn=u64, size=Py_ssize_t, last_now_ms=u64, clean=bint,
        left=long, result=int, mask=u32, end=Py_ssize_t, now_ms=u64,
    )
    cpdef int scan(self, array.array starts, array.array ends, array.array times) except -1

    @cython.locals(at=Py_ssize_t, number=u64, synced=u64, here=u64)
    cdef bint _is_synced(self, Py_ssize_t offset, Py_ssize_t end) except -1
