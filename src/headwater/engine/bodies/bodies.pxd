cimport cython
from headwater.engine.bodies.sealed_block cimport SealedBlock, unpack, unpacked


@cython.final
cdef class _Kept:
    cdef public Py_ssize_t size
    cdef object _blocks

    cdef add(self, block, Py_ssize_t size)
    @cython.locals(size=Py_ssize_t)
    cdef bint take(self, block) except -1
    @cython.locals(size=Py_ssize_t, packed=SealedBlock)
    cdef close_oldest(self, Py_ssize_t bound, Py_ssize_t but)


cdef class Bodies:
    cdef public object source
    cdef public bint may_wait
    cdef public Py_ssize_t most_bytes
    cdef public long long opened_count
    cdef dict _codecs
    cdef _Kept _once
    cdef _Kept _again
    cdef object _freed
    cdef object _note_freed
    cdef public bint holding
    cdef list _held
    cdef list _delivered

    cpdef open(self, SealedBlock packed, Py_ssize_t first, Py_ssize_t end)
    @cython.locals(was_open=bint)
    cpdef bint try_open(self, SealedBlock packed, Py_ssize_t first, Py_ssize_t end) except -1
    @cython.locals(packed=SealedBlock, first=Py_ssize_t, end=Py_ssize_t, was_open=bint)
    cpdef hold(self, dict wanted, missed=*)
    cpdef release(self)
    cpdef codec(self, str name)
    cdef _source(self)
    @cython.locals(was_open=bint)
    cdef bint _read(self, SealedBlock packed, Py_ssize_t first, Py_ssize_t end) except -1
    @cython.locals(since=Py_ssize_t)
    cdef _note_opening(self, SealedBlock packed)
    cdef _hold(self, SealedBlock packed, list held, bint was_open)
    cdef _take(self, SealedBlock packed)
    @cython.locals(packed=SealedBlock)
    cdef _let_go(self, list held)
    cdef _keep_open(self, SealedBlock packed)
    cdef _forget_freed(self)
    @cython.locals(most=Py_ssize_t, once=Py_ssize_t)
    cdef _close_oldest(self, Py_ssize_t bound, Py_ssize_t but=*)


cdef _present(source)
cpdef place_of(SealedBlock packed)
