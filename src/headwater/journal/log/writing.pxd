cimport cython
from headwater.journal.format.checksum_c cimport bind_groups
from headwater.journal.format.records cimport counted_bytes
from headwater.native.memory_c cimport u32, u64_at

cdef long long SYNCED_GROUP_BYTES


cdef class Writer:
    cdef object _files
    cdef u32 _seed
    cdef public long long number
    cdef public long long size
    cdef public long long end
    cdef public str name
    cdef u32 _key
    cdef bint _binds
    cdef public long long turn
    cdef public long long now_ms
    cdef public object unrecorded_sync
    cdef public bint unsynced
    cdef public bint clean

    cpdef use(self, file, long long end)
    cpdef long long room(self) except? -1
    cpdef long long append(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef _write_synced(self, synced)
    @cython.locals(counted="long long")
    cdef long long _write(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
