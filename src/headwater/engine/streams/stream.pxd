cimport cython
from cpython cimport array
from headwater.engine.shared.history cimport StreamHistory
from headwater.engine.redis_nodes.nodes cimport NodeIndex
from headwater.native.memory_c cimport offset_at, u64, word_at

cdef long long MAX_ENTRIES_COUNT


@cython.final
cdef class StoredStream(StreamHistory):
    cdef public NodeIndex nodes
    cdef public dict groups
    cdef public long long used_ms
    cdef public object idempotency

    cpdef int expect_entry(self) except -1
    cpdef int append_part(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end, Py_ssize_t pairs,
        bint opens_node,
    ) except -1
    @cython.locals(
        at=Py_ssize_t, behind=Py_ssize_t, number=Py_ssize_t, ms=u64, seq=u64
    )
    cpdef append_all(
        self, array.array ids, bytearray wire, array.array ends, array.array pairs,
        Py_ssize_t first, Py_ssize_t end,
    )
