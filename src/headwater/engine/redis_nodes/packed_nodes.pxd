cimport cython
from cpython cimport array
from headwater.engine.redis_nodes.node_runs cimport NodeRun, find_node
from headwater.native.memory_c cimport u64, word_at

cdef Py_ssize_t LAST_MS, LAST_SEQ, LIVE, NODE_WORDS


@cython.final
cdef class PackedNodes:
    cdef public list runs
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size
    cdef NodeRun _open
    cdef Py_ssize_t _at
    cdef Py_ssize_t _before

    cpdef PackedNodes copy(self)
    cpdef NodeRun run_at(self, Py_ssize_t node)
    cpdef u64 word(self, Py_ssize_t node, Py_ssize_t which) except? 0
    cpdef bytes names_of(self, Py_ssize_t node)
    @cython.locals(run=NodeRun, begin=Py_ssize_t, stop=Py_ssize_t, words=array.array)
    cpdef tuple part(self, Py_ssize_t first, Py_ssize_t end)
    cpdef list closed(self)
    cpdef int append(self, NodeRun run) except -1
    @cython.locals(run=NodeRun)
    cpdef NodeRun pop(self)
    @cython.locals(run=NodeRun, at=Py_ssize_t, node=Py_ssize_t)
    cpdef int drop(self, u64 ms, u64 seq, bint stays) except -1
    @cython.locals(run=NodeRun, at=Py_ssize_t)
    cpdef Py_ssize_t trim_through(self, u64 ms, u64 seq, Py_ssize_t gone) except? -1
    @cython.locals(
        run=NodeRun, words=array.array, node=Py_ssize_t, end=Py_ssize_t, last=Py_ssize_t
    )
    cdef Py_ssize_t _trim_first(self, u64 ms, u64 seq, Py_ssize_t gone) except? -1
    @cython.locals(run=NodeRun)
    cdef int _remove(self, Py_ssize_t at, Py_ssize_t first, Py_ssize_t end) except -1
    cdef int _forget(self, NodeRun run) except -1
    @cython.locals(run=NodeRun)
    cdef NodeRun _find(self, Py_ssize_t node)
    @cython.locals(
        run=NodeRun, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t
    )
    cdef Py_ssize_t _run_of(self, u64 ms, u64 seq) except -1
    @cython.locals(run=NodeRun)
    cdef NodeRun _opened(self, Py_ssize_t at)
    cdef int _close(self) except -1
