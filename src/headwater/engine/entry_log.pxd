cimport cython
from cpython cimport array
from headwater.memory_c cimport (
    append_entry, offset_at, push_offset, push_word, u32, u64, word_at,
)

cdef Py_ssize_t ENTRY_HEADER_BYTES


cdef class EntryBlock:
    cdef public bytearray data
    cdef public array.array ids
    cdef public array.array offsets
    cdef public bytearray dead
    cdef public Py_ssize_t head
    cdef public Py_ssize_t count
    cdef public Py_ssize_t live
    cdef public Py_ssize_t dead_bytes
    cdef public bint shared

    cpdef Py_ssize_t start(self, Py_ssize_t index) except -1
    cpdef bint lives(self, Py_ssize_t index) except -1
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, ids=array.array, found=u64
    )
    cpdef Py_ssize_t lower_bound(self, u64 ms, u64 seq) except -1


cdef class Span:
    cdef public EntryBlock block
    cdef public Py_ssize_t first
    cdef public Py_ssize_t end

    cpdef Py_ssize_t start(self) except -1
    cpdef Py_ssize_t stop(self) except -1


cdef class EntryLog:
    cdef public list blocks
    cdef public Py_ssize_t length

    @cython.locals(block=EntryBlock)
    cdef EntryBlock _own(self, Py_ssize_t at)
    @cython.locals(block=EntryBlock, blocks=list, last=Py_ssize_t, size=Py_ssize_t)
    cpdef int append(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end, Py_ssize_t pairs
    ) except -1
    cdef EntryBlock _open(self)
    @cython.locals(block=EntryBlock)
    cpdef tuple first(self)
    @cython.locals(at=Py_ssize_t, block=EntryBlock, index=Py_ssize_t)
    cpdef get(self, u64 ms, u64 seq)
    @cython.locals(at=Py_ssize_t)
    cpdef bint contains(self, u64 ms, u64 seq) except -1
    @cython.locals(
        spans=list, total=Py_ssize_t, at=Py_ssize_t, first=bint, block=EntryBlock,
        index=Py_ssize_t, stop=Py_ssize_t, limit=Py_ssize_t, run=Py_ssize_t,
    )
    cpdef tuple spans(self, tuple start, tuple end, Py_ssize_t count=*)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, block=EntryBlock, last=Py_ssize_t,
        found=u64,
    )
    cpdef Py_ssize_t _block_of(self, u64 ms, u64 seq) except -1
    @cython.locals(ids=array.array, index=Py_ssize_t)
    cdef Py_ssize_t _exact(self, EntryBlock block, u64 ms, u64 seq) except -2
    @cython.locals(ids=array.array, index=Py_ssize_t)
    cdef Py_ssize_t _behind(self, EntryBlock block, u64 ms, u64 seq) except -1
    @cython.locals(gap=Py_ssize_t)
    cdef Py_ssize_t _run(self, EntryBlock block, Py_ssize_t index, Py_ssize_t limit) except -1
