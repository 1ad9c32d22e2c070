cimport cython
from headwater.commands.call cimport Call
from headwater.engine.entries.entry_log cimport EntryLog
from headwater.engine.redis_nodes.node_runs cimport NodeRun
from headwater.engine.redis_nodes.nodes cimport NodeIndex
from headwater.engine.streams.stream cimport StoredStream
from headwater.resp.arguments cimport Arguments


cdef class _Plan:
    cdef public Py_ssize_t gone
    cdef public tuple bound
    cdef public list ids
    cdef public bint stays


@cython.final
cdef class Trim:
    cdef public long long maxlen
    cdef public tuple minid
    cdef public bint approximate
    cdef public long long limit
    cdef public bytes mode

    @cython.locals(word=bytes, more=Py_ssize_t)
    cpdef Py_ssize_t take(self, Arguments arguments, Py_ssize_t index) except -1
    @cython.locals(sign=bytes)
    cdef Py_ssize_t _strategy(
        self, Arguments arguments, Py_ssize_t index, bytes word, Py_ssize_t more
    ) except -1
    cpdef int check(self, Py_ssize_t node_max_entries) except -1
    cpdef object fact_bytes(self, StoredStream stream, Py_ssize_t added)
    @cython.locals(plan=_Plan)
    cpdef Py_ssize_t apply(self, StoredStream stream) except -1
    @cython.locals(
        nodes=NodeIndex, run=NodeRun, keeps_references=bint, passed=Py_ssize_t, node=Py_ssize_t,
        count=Py_ssize_t, live=Py_ssize_t, whole=bint,
    )
    cdef _plan(self, StoredStream stream, _Plan plan)
    cdef bint _covers_run(self, Py_ssize_t length, _Plan plan, NodeRun run) except -1
    cdef bint _pick(self, StoredStream stream, Py_ssize_t node, _Plan plan) except -1
    cdef bint _enough(self, Py_ssize_t length, tuple entry_id) except -1
    cdef bint _covers(self, Py_ssize_t length_without, tuple last) except -1


cpdef xtrim(Call call)
