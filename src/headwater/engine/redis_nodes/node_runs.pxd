cimport cython
from cpython cimport array
from headwater.engine.redis_nodes.radix_nodes cimport RadixCount, common_bytes, radix_nodes
from headwater.native.memory_c cimport set_word, u64, word_at
from headwater.native.packing_c cimport pack_rows, unpack_rows

cdef Py_ssize_t FIRST_MS, FIRST_SEQ, LAST_MS, LAST_SEQ, LIVE, NODE_WORDS
cdef Py_ssize_t _RUN_BYTES


@cython.final
cdef class NodeRun:
    cdef public array.array words
    cdef public bytes packed
    cdef public object names
    cdef public RadixCount radix
    cdef public Py_ssize_t count
    cdef public Py_ssize_t live
    cdef public u64 last_ms
    cdef public u64 last_seq
    cdef public u64 first_ms
    cdef public u64 first_seq
    cdef public u64 newest_ms
    cdef public u64 newest_seq
    cdef public Py_ssize_t booked

    @cython.locals(words=array.array, at=Py_ssize_t, last=Py_ssize_t)
    cpdef int sum_up(self) except -1
    cpdef bytes names_of(self, Py_ssize_t node)
    @cython.locals(packed=Py_ssize_t, names=Py_ssize_t, before=Py_ssize_t)
    cpdef Py_ssize_t book(self) except? -1
    cpdef NodeRun opened(self)
    @cython.locals(words=array.array)
    cpdef array.array unpacked(self)
    @cython.locals(
        words=array.array, radix=RadixCount, at=Py_ssize_t, ms=u64, seq=u64, next_ms=u64,
        next_seq=u64,
    )
    cpdef pack(self)
    @cython.locals(at=Py_ssize_t)
    cpdef int leave(self, Py_ssize_t node, Py_ssize_t entries) except -1
    cpdef int remove(self, Py_ssize_t first, Py_ssize_t end) except -1


@cython.locals(middle=Py_ssize_t, at=Py_ssize_t, found=u64)
cpdef Py_ssize_t find_node(
    array.array words, Py_ssize_t low, Py_ssize_t high, u64 ms, u64 seq
) except -1

cpdef object shared_names(list names)

@cython.locals(run=NodeRun, before=NodeRun, depth=int)
cpdef Py_ssize_t count_radix_tree(list runs, NodeRun newest) except -1
