cimport cython
from cpython cimport array
from headwater.engine.bodies.block_account cimport BlockAccount
from headwater.engine.bodies.sealed_block cimport SealedBlock, offsets_in, start_in, unpacked_ids
from headwater.native.memory_c cimport (
    cut, offset_at, reserve, u64, word_at,
)
from headwater.native.packing_c cimport find_packed, pack_ids

cdef Py_ssize_t _ARRAYS_BYTES, _OBJECTS_BYTES, _PACKED_BYTES
cdef u64 _MAX
cdef bytearray _NO_DATA
cdef array.array _NO_IDS
cdef array.array _NO_OFFSETS


@cython.final
cdef class EntryBlock:
    # The fields that an append uses are adjacent, which saves a cache line for each of many streams. The id is next to
    # the reference count, because a search reads both, of blocks that are not cached.
    cdef public u64 last_ms
    cdef public u64 last_seq
    cdef public bytearray data
    cdef public array.array ids
    cdef public array.array offsets
    cdef public bytearray dead
    cdef public Py_ssize_t room
    cdef public Py_ssize_t count
    cdef public Py_ssize_t live
    cdef public Py_ssize_t head
    cdef public Py_ssize_t dead_bytes
    cdef public BlockAccount sealing
    cdef public SealedBlock packed
    cdef public Py_ssize_t booked
    cdef public int books
    cdef public bint closed
    cdef public bint shared
    cdef public long long origin
    cdef object __weakref__

    cpdef entries(self)
    cpdef piece(self, Py_ssize_t first, Py_ssize_t end)
    cpdef Py_ssize_t base(self) except -1
    @cython.locals(base=Py_ssize_t)
    cpdef bytes take(self, Py_ssize_t index)
    cpdef array.array edges(self)
    cpdef array.array known_ids(self)
    cpdef bytes packed_ids(self)
    cpdef Py_ssize_t start(self, Py_ssize_t index) except -1
    cpdef bint lives(self, Py_ssize_t index) except -1
    @cython.locals(packed=SealedBlock, ids=array.array, at=Py_ssize_t)
    cpdef tuple first(self)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, ids=array.array, found=u64
    )
    cpdef Py_ssize_t lower_bound(self, u64 ms, u64 seq) except -1
    cpdef Py_ssize_t behind(self, u64 ms, u64 seq) except -1
    @cython.locals(gap=Py_ssize_t)
    cpdef Py_ssize_t run(self, Py_ssize_t index, Py_ssize_t limit) except -1
    @cython.locals(gap=Py_ssize_t)
    cpdef Py_ssize_t run_before(self, Py_ssize_t index, Py_ssize_t limit) except -1
    @cython.locals(
        size=Py_ssize_t, most=Py_ssize_t, room=Py_ssize_t, entries=Py_ssize_t, taken=Py_ssize_t
    )
    cpdef bint widen(self, Py_ssize_t need, Py_ssize_t least) except -1
    @cython.locals(size=Py_ssize_t, before=int, books=int)
    cpdef bint _book(self) except -1
    cpdef _move(self, int books, Py_ssize_t size)
    @cython.locals(wire=Py_ssize_t)
    cpdef pack(self, SealedBlock packed)
    cpdef _count(self, SealedBlock packed, int times)
    cpdef _note_unstored(self)
    cpdef kill(self, Py_ssize_t index)
    @cython.locals(count=Py_ssize_t, end=Py_ssize_t, ids=array.array)
    cpdef _cut_tail(self)
    cpdef bint outweighed(self) except -1


@cython.final
cdef class Span:
    cdef public EntryBlock block
    cdef public Py_ssize_t first
    cdef public Py_ssize_t end

    cpdef data(self)
    cpdef Py_ssize_t start(self) except -1
    cpdef Py_ssize_t stop(self) except -1
