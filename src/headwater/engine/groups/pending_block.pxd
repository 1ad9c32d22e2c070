cimport cython
from cpython cimport array
from headwater.native.memory_c cimport (
    copy_words, fit_words, new_words, put_records, set_word, u64, word_at,
)

cdef array.array _LIKE
cdef Py_ssize_t _WORDS, _LEAST_ROOM
cdef u64 _OWNER_BITS, MAX_U64, _LONGEST_SPAN


cpdef Py_ssize_t expected_at(u64 ms, u64 first, u64 last, Py_ssize_t count) except -2


@cython.final
@cython.freelist(16)
cdef class PendingBlock:
    cdef public array.array words
    cdef public Py_ssize_t head
    cdef public Py_ssize_t end
    cdef public u64 min_time
    cdef public u64 owners
    cdef public bint dangling
    cdef Py_ssize_t _near

    cpdef PendingBlock copy(self)
    cpdef Py_ssize_t count(self)
    @cython.locals(first=u64)
    cdef bint begins_after(self, u64 ms, u64 seq) except -1
    cdef bint ends_before(self, u64 ms, u64 seq) except -1
    @cython.locals(at=Py_ssize_t)
    cdef bint is_at(self, Py_ssize_t number, u64 ms, u64 seq) except -1
    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t find_next(self, u64 ms, u64 seq) except -2
    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t find(self, u64 ms, u64 seq) except -2
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, near=Py_ssize_t, step=Py_ssize_t,
    )
    cpdef Py_ssize_t lower_bound(self, u64 ms, u64 seq) except -1
    @cython.locals(found=u64)
    cdef bint _is_before(self, Py_ssize_t number, u64 ms, u64 seq) except -1
    cdef u64 first_ms(self) except? 0
    cdef u64 last_ms(self) except? 0
    @cython.locals(same=Py_ssize_t, most=Py_ssize_t, at=Py_ssize_t, given=Py_ssize_t)
    cdef Py_ssize_t same_ids(self, Py_ssize_t number, array.array ids, Py_ssize_t start) except -1
    cpdef u64 owner(self, Py_ssize_t number) except? 0
    @cython.locals(same=Py_ssize_t, owner=u64)
    cdef Py_ssize_t same_owner(self, Py_ssize_t number, Py_ssize_t most) except -1
    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t first_of(self, u64 owner, Py_ssize_t number) except -2
    cpdef bint all_delivered_after(self, long long time) except -1
    @cython.locals(earliest=u64, number=Py_ssize_t)
    cpdef settle_min_time(self)
    @cython.locals(owners=u64, number=Py_ssize_t)
    cpdef settle_owners(self)
    @cython.locals(bit=u64)
    cdef u64 _bit(self, u64 owner)
    @cython.locals(at=Py_ssize_t)
    cdef set(self, Py_ssize_t number, u64 time, u64 owner, u64 count)
    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t append(
        self, array.array ids, Py_ssize_t first, Py_ssize_t count, u64 time, u64 owner,
        Py_ssize_t most,
    ) except -1
    @cython.locals(place=Py_ssize_t, above=Py_ssize_t, words=array.array)
    cdef Py_ssize_t open(self, Py_ssize_t number, u64 ms, u64 seq, Py_ssize_t most) except -1
    @cython.locals(behind=Py_ssize_t, above=Py_ssize_t)
    cdef close(self, Py_ssize_t number, Py_ssize_t count)
    @cython.locals(count=Py_ssize_t)
    cdef take_over(self, PendingBlock above, Py_ssize_t most)
    @cython.locals(upper=PendingBlock, half=Py_ssize_t)
    cdef PendingBlock split(self, Py_ssize_t most)
    @cython.locals(room=Py_ssize_t, there=Py_ssize_t)
    cdef _make_room(self, Py_ssize_t count, Py_ssize_t most)
