cimport cython
from headwater.engine.facts.facts cimport FactBuffer
from headwater.journal.format.records cimport begin_group, seal_group


@cython.final
cdef class TurnRecords:
    cdef public FactBuffer facts
    cdef public object journal
    cdef public long long turn
    cdef public bint is_open
    cdef public object admission
    cdef public long long grown_bytes
    cdef public object pass_on
    cdef unsigned int _seed
    cdef long long _allowance
    cdef bint _awaited
    cdef bint _refusing
    cdef bint _wants_room

    cpdef Py_ssize_t begin(self) except -1
    cpdef seal(self, Py_ssize_t mark, long long now_ms)
    cpdef seal_unawaited(self, Py_ssize_t mark, long long now_ms)
    cpdef admit(self, Py_ssize_t size)
    cpdef commit(self)
    cpdef drop(self)
