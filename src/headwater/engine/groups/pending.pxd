cimport cython
from cpython cimport array
from headwater.engine.accounts.memory_account cimport MemoryAccount
from headwater.engine.groups.pending_block cimport PendingBlock, expected_at
from headwater.native.memory_c cimport copy_words, remove_words, u64, word_at

cdef Py_ssize_t _WORDS, _SHIFT, _MASK
cdef u64 _BIG
cdef Py_ssize_t BLOCK_BYTES, FULL_BLOCK_BYTES


@cython.locals(there=Py_ssize_t)
cdef Py_ssize_t _room_of(PendingBlock block) except -1


cdef class PendingList:
    cdef public list blocks
    cdef public Py_ssize_t length
    cdef public dict big_counts
    cdef public MemoryAccount account
    cdef public Py_ssize_t booked
    cdef Py_ssize_t _near

    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, last=PendingBlock)
    cpdef int book(self) except -1

    @cython.locals(number=Py_ssize_t, found=Py_ssize_t, block=PendingBlock)
    cpdef Py_ssize_t find(self, u64 ms, u64 seq) except -2
    @cython.locals(number=Py_ssize_t, block=PendingBlock)
    cpdef Py_ssize_t seek(self, u64 ms, u64 seq) except -2
    cpdef Py_ssize_t after(self, Py_ssize_t at) except -2
    @cython.locals(number=Py_ssize_t, block=PendingBlock)
    cpdef Py_ssize_t before(self, Py_ssize_t at) except -2
    @cython.locals(found=Py_ssize_t, block=PendingBlock)
    cpdef Py_ssize_t owned_from(self, Py_ssize_t at, u64 owner) except -2
    cpdef Py_ssize_t delivered_from(self, Py_ssize_t at, long long time) except -2
    @cython.locals(block=PendingBlock)
    cpdef Py_ssize_t block_start(self, Py_ssize_t number) except -2
    cpdef PendingBlock block_at(self, Py_ssize_t at)
    cpdef Py_ssize_t number_of(self, Py_ssize_t at)
    cpdef Py_ssize_t number_in_block(self, Py_ssize_t at)
    @cython.locals(number=Py_ssize_t, block=PendingBlock)
    cpdef tuple last(self)
    @cython.locals(number=Py_ssize_t, block=PendingBlock)
    cdef bint ends_before(self, u64 ms, u64 seq) except -1
    cdef Py_ssize_t same_ids(self, Py_ssize_t at, array.array ids, Py_ssize_t start) except -1
    cdef Py_ssize_t same_owner(self, Py_ssize_t at, Py_ssize_t most) except -1
    @cython.locals(
        kept=Py_ssize_t, number=Py_ssize_t, total=Py_ssize_t, at=Py_ssize_t, same=Py_ssize_t
    )
    cpdef keep_pending(self, array.array ids)
    cpdef tuple id(self, Py_ssize_t at)
    cpdef u64 ms(self, Py_ssize_t at) except? 0
    cpdef u64 seq(self, Py_ssize_t at) except? 0
    cpdef u64 time(self, Py_ssize_t at) except? 0
    cpdef u64 owner(self, Py_ssize_t at) except? 0
    @cython.locals(count=u64)
    cpdef u64 delivery_count(self, Py_ssize_t at) except? 0
    @cython.locals(
        start=Py_ssize_t, number=Py_ssize_t, block=PendingBlock, room=Py_ssize_t,
        count=Py_ssize_t, found=Py_ssize_t,
    )
    cpdef Py_ssize_t append(
        self, array.array ids, Py_ssize_t first, Py_ssize_t end, u64 time, u64 owner
    ) except -2
    @cython.locals(number=Py_ssize_t, block=PendingBlock, place=Py_ssize_t, at=Py_ssize_t)
    cpdef Py_ssize_t insert(self, u64 ms, u64 seq, u64 owner, u64 time, u64 count) except -2
    cpdef change(self, Py_ssize_t at, u64 owner, u64 time, u64 count)
    @cython.locals(block=PendingBlock, kept=list, last=PendingBlock)
    cpdef Py_ssize_t remove_owner(self, u64 owner) except -1
    @cython.locals(number=Py_ssize_t, at=Py_ssize_t)
    cdef _remove_from(self, PendingBlock block, u64 owner)
    @cython.locals(number=Py_ssize_t, block=PendingBlock, there=Py_ssize_t, one=Py_ssize_t)
    cpdef remove(self, Py_ssize_t at, Py_ssize_t count=*)
    @cython.locals(at=Py_ssize_t)
    cpdef mark_gone(self, u64 ms, u64 seq)
    @cython.locals(
        blocks=list, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, step=Py_ssize_t,
        block=PendingBlock,
    )
    cdef Py_ssize_t _block_of(self, u64 ms, u64 seq) except -1
    @cython.locals(first=PendingBlock, last=PendingBlock)
    cdef Py_ssize_t _expected(self, u64 ms, Py_ssize_t count) except -2
    @cython.locals(left=Py_ssize_t, lower=PendingBlock, upper=PendingBlock)
    cdef _merge(self, Py_ssize_t number)
