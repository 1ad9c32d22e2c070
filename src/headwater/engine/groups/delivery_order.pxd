cimport cython
from cpython cimport array
from headwater.engine.groups.pending cimport PendingList
from headwater.engine.groups.pending_block cimport PendingBlock
from headwater.native.memory_c cimport add_word, insert_words, remove_words, set_word, u64, word_at

cdef Py_ssize_t _WORDS, _SLACK, _MOST_COVERED, RUN_BYTES, INDEX_BYTES
cdef long long _NO_TIME


@cython.final
cdef class DeliveryOrder:
    cdef public PendingList pel
    cdef public array.array times
    cdef public array.array ids
    cdef public array.array counts
    cdef public Py_ssize_t covered
    cdef public long long index_time
    cdef public list index
    cdef public Py_ssize_t booked

    @cython.locals(size=Py_ssize_t)
    cpdef int book(self) except -1

    @cython.locals(first=tuple, last=tuple, place=Py_ssize_t)
    cpdef add(self, Py_ssize_t at, Py_ssize_t count, long long time)
    @cython.locals(entry_id=tuple, place=Py_ssize_t, found=Py_ssize_t)
    cdef _add_among(self, Py_ssize_t at, long long time)
    @cython.locals(pel=PendingList, block=PendingBlock, number=Py_ssize_t)
    cdef tuple _last_of(self, Py_ssize_t at, Py_ssize_t count)
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _place(self, u64 time) except -1
    @cython.locals(before=Py_ssize_t)
    cdef bint _grow(self, Py_ssize_t run, Py_ssize_t at, tuple end, Py_ssize_t count) except -1
    cpdef DeliveryWalk begin(self)
    cpdef clear(self)
    cpdef tidy(self)
    @cython.locals(run=Py_ssize_t, first=Py_ssize_t, gone=Py_ssize_t)
    cdef _shed(self)
    @cython.locals(walk=DeliveryWalk, at=Py_ssize_t)
    cdef _rebuild(self)
    @cython.locals(size=Py_ssize_t)
    cdef _index(self, long long time)
    @cython.locals(ids=array.array, base=Py_ssize_t)
    cdef tuple _run(self, Py_ssize_t run)
    @cython.locals(base=Py_ssize_t)
    cdef _insert(self, Py_ssize_t run, u64 time, tuple first, tuple last, Py_ssize_t count)
    @cython.locals(pel=PendingList, ids=array.array, base=Py_ssize_t, time=u64, ms=u64, seq=u64, found=u64)
    cdef Py_ssize_t next_in(self, Py_ssize_t run, Py_ssize_t at) except -2


@cython.final
cdef class DeliveryWalk:
    cdef DeliveryOrder _order
    cdef Py_ssize_t _run
    cdef Py_ssize_t _at

    cpdef Py_ssize_t next(self) except -2
