cimport cython
from cpython cimport array
from headwater.engine.entries.entry_block cimport EntryBlock, Span
from headwater.engine.bodies.sealed_block cimport SealedBlock
from headwater.engine.bodies.block_account cimport BlockAccount
from headwater.native.memory_c cimport (
    append_entry, prefetch_bytes_end, prefetch_end, push_id, push_offset, u64, word_at,
)

cdef Py_ssize_t ENTRY_HEADER_BYTES
cdef Py_ssize_t _FIRST_ROOM


@cython.final
cdef class EntryLog:
    cdef public list blocks
    cdef EntryBlock _tail
    cdef public Py_ssize_t length
    cdef public BlockAccount sealing
    cdef public long long sid

    @cython.locals(block=EntryBlock)
    cdef EntryBlock _own(self, Py_ssize_t at)
    cdef int _check_tail(self) except -1
    cdef int prefetch(self) except -1
    @cython.locals(block=EntryBlock, need=Py_ssize_t)
    cpdef int append(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end, Py_ssize_t pairs
    ) except -1
    @cython.locals(last=Py_ssize_t, least=Py_ssize_t, block=EntryBlock)
    cdef EntryBlock _open(self, Py_ssize_t need)
    @cython.locals(block=EntryBlock)
    cpdef tuple first(self)
    @cython.locals(block=EntryBlock)
    cpdef tuple last(self)
    @cython.locals(at=Py_ssize_t, block=EntryBlock, index=Py_ssize_t)
    cpdef get(self, u64 ms, u64 seq)
    @cython.locals(at=Py_ssize_t, block=EntryBlock, index=Py_ssize_t, packed=SealedBlock)
    cpdef gather(self, u64 ms, u64 seq, list missed)
    @cython.locals(at=Py_ssize_t)
    cpdef bint holds(self, EntryBlock block) except -1
    @cython.locals(at=Py_ssize_t, block=EntryBlock, index=Py_ssize_t)
    cpdef bint delete(self, u64 ms, u64 seq) except -1
    @cython.locals(
        gone=Py_ssize_t, at=Py_ssize_t, block=EntryBlock, end=Py_ssize_t, index=Py_ssize_t
    )
    cpdef Py_ssize_t trim_through(self, u64 ms, u64 seq) except -1
    @cython.locals(at=Py_ssize_t)
    cpdef bint contains(self, u64 ms, u64 seq) except -1
    @cython.locals(
        spans=list, total=Py_ssize_t, at=Py_ssize_t, first=bint, block=EntryBlock,
        index=Py_ssize_t, stop=Py_ssize_t, limit=Py_ssize_t, run=Py_ssize_t,
    )
    cpdef tuple spans(self, tuple start, tuple end, Py_ssize_t count=*)
    @cython.locals(
        begin=Py_ssize_t, at=Py_ssize_t, block=EntryBlock, low=Py_ssize_t, high=Py_ssize_t,
        total=Py_ssize_t, index=Py_ssize_t,
    )
    cpdef Py_ssize_t count_range(self, tuple start, tuple end) except -1
    @cython.locals(
        found=list, passed=Py_ssize_t, step=Py_ssize_t, begin=Py_ssize_t, at=Py_ssize_t,
        block=EntryBlock, low=Py_ssize_t, ids=array.array, index=Py_ssize_t,
    )
    cpdef list nth(self, tuple start, list steps)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, block=EntryBlock)
    cpdef Py_ssize_t find_block(self, u64 ms, u64 seq) except -1
    @cython.locals(ids=array.array, index=Py_ssize_t)
    cdef Py_ssize_t _exact(self, EntryBlock block, u64 ms, u64 seq) except -2


@cython.locals(span=Span, packed=SealedBlock)
cpdef bint any_stored(list spans) except -1
