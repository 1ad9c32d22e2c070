cimport cython
from cpython cimport array
from headwater.engine.redis_nodes.entry_fields cimport field_names
from headwater.engine.accounts.memory_account cimport MemoryAccount
from headwater.engine.redis_nodes.node_runs cimport NodeRun, count_radix_tree, find_node, shared_names
from headwater.engine.redis_nodes.packed_nodes cimport PackedNodes
from headwater.engine.accounts.weights_c cimport grow, integer_bytes, weigh
from headwater.native.memory_c cimport prefetch_end, push_word, set_word, u64, word_at

cdef Py_ssize_t MAX_ENTRY_BYTES, LISTPACK_FRAME, NODE_BYTES
cdef Py_ssize_t CONTENT, PAIRS, NAMES_SIZE, WORDS
cdef Py_ssize_t FIRST_MS, FIRST_SEQ, LAST_MS, LAST_SEQ, TAKEN, LIVE, SIZE, NODE_WORDS, RUN_NODES


@cython.final
cdef class Weighing:
    cdef public MemoryAccount account
    cdef NodeIndex index
    cdef bytearray wire
    cdef Py_ssize_t start, end
    cdef array.array words
    cdef bint same


@cython.final
cdef class NodeIndex:
    cdef public array.array _words
    cdef public list names
    cdef bytes _newest
    cdef public Py_ssize_t gone
    cdef public PackedNodes packed
    cdef Weighing _weighing
    cdef public Py_ssize_t booked

    @cython.locals(size=Py_ssize_t)
    cpdef int book(self) except -1
    cdef Py_ssize_t _older(self) except -1
    cdef Py_ssize_t _at(self, Py_ssize_t node) except -1
    cdef u64 _word(self, Py_ssize_t node, Py_ssize_t which) except? 0
    cpdef u64 live(self, Py_ssize_t node) except? 0
    cpdef u64 taken(self, Py_ssize_t node) except? 0
    cpdef Py_ssize_t size(self, Py_ssize_t node) except -1
    cpdef NodeRun run_at(self, Py_ssize_t node)
    @cython.locals(taken=u64, live=u64, rest=u64)
    cdef Py_ssize_t _newest_size(self, Py_ssize_t at) except -1
    cdef int prefetch(self) except -1
    @cython.locals(at=Py_ssize_t, most=Py_ssize_t)
    cpdef bint opens(
        self, bytearray wire, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_bytes,
        Py_ssize_t max_entries,
    ) except -1
    @cython.locals(found=Weighing, pairs=u64, names_size=u64, names=bytes)
    cpdef int add(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end, bint opens_node,
    ) except -1
    @cython.locals(words=array.array, newest=Py_ssize_t, last=Py_ssize_t)
    cdef int _open(self, u64 ms, u64 seq, bytes names, u64 size) except -1
    @cython.locals(first=Py_ssize_t)
    cdef bint _begins_from(self, Py_ssize_t newest, u64 ms, u64 seq) except -1
    cdef Weighing _weigh(self, bytearray wire, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(newest=NodeRun)
    cdef bint _is_packed(self, u64 ms, u64 seq) except -1
    @cython.locals(first=Py_ssize_t, end=Py_ssize_t)
    cdef int _pack(self) except -1
    cdef int _unpack(self) except -1
    cdef int _leave(self, Py_ssize_t nodes) except -1
