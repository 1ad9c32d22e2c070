cimport cython
from cpython cimport array
from headwater.memory_c cimport (
    add_word, cut, length_at, push_word, same_part, set_word, signed_difference, u64, word_at,
)

cdef Py_ssize_t _WORDS, _TAKEN, _LIVE, _SIZE
cdef int _CR, _MINUS
cdef Py_ssize_t MAX_ENTRY_BYTES
cdef unsigned long _TEN


@cython.locals(at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
cpdef list elements(bytes wire)

cdef Py_ssize_t _with_backlen(Py_ssize_t size) noexcept

cpdef Py_ssize_t integer_bytes(long long value) noexcept

cpdef Py_ssize_t element_bytes(bytes value)

@cython.locals(size=Py_ssize_t, first=int)
cdef Py_ssize_t _part_bytes(bytearray wire, Py_ssize_t start, Py_ssize_t length) except -1

@cython.locals(at=Py_ssize_t, end=Py_ssize_t, value="long long", digit=int)
cdef Py_ssize_t _spelled_bytes(bytearray wire, Py_ssize_t start, Py_ssize_t length) except -1

cdef Py_ssize_t _long_spelled_bytes(bytes text, Py_ssize_t signs) except -1

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _header_bytes(unsigned long length) noexcept


cdef class NodeIndex:
    cdef public array.array _words
    cdef public list names
    cdef public Py_ssize_t gone
    cdef bytearray _source
    cdef Py_ssize_t _start, _end, _content, _pairs, _names_size, _values_size
    cdef bint _same

    cdef Py_ssize_t _at(self, Py_ssize_t node)
    cpdef u64 taken(self, Py_ssize_t node) except? 0
    @cython.locals(at=Py_ssize_t, taken=u64, live=u64, rest=u64)
    cpdef Py_ssize_t size(self, Py_ssize_t node) except -1
    @cython.locals(newest=Py_ssize_t, most=Py_ssize_t)
    cpdef bint opens(
        self, bytearray wire, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_bytes,
        Py_ssize_t max_entries,
    ) except -1
    @cython.locals(words=array.array, base=Py_ssize_t, size=Py_ssize_t, parts=Py_ssize_t)
    cpdef int add(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end, bint opens_node,
    ) except -1
    @cython.locals(words=array.array, newest=Py_ssize_t)
    cdef int _open(
        self, u64 ms, u64 seq, bytearray wire, Py_ssize_t start, Py_ssize_t end,
    ) except -1
    @cython.locals(
        names=bytes, ahead=Py_ssize_t, content=Py_ssize_t, pairs=Py_ssize_t,
        names_size=Py_ssize_t, values_size=Py_ssize_t, same=bint, at=Py_ssize_t, name=Py_ssize_t,
        length=Py_ssize_t,
    )
    cdef int _weigh(self, bytearray wire, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(
        words=array.array, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, at=Py_ssize_t,
        found=u64,
    )
    cdef Py_ssize_t _node_of(self, u64 ms, u64 seq) except -1
