cimport cython
from cpython cimport array
from headwater.native.memory_c cimport (
    append_bytes, append_header, append_part, cut, new_words, read_id, read_integer, set_word, short_integer, spells, u64, word_at,
)


cdef Py_ssize_t _ROOM
cdef int _DOLLAR, _STAR
cdef bytes _CRLF
cdef array.array _WORDS


@cython.final
cdef class Arguments:
    cdef public bytearray buffer
    cdef public array.array starts
    cdef public array.array ends
    cdef public Py_ssize_t count
    cdef public bint canonical
    cdef public u64 ms
    cdef public u64 seq
    cdef public long long number
    cdef public Py_ssize_t wire_start
    cdef public Py_ssize_t wire_end
    cdef public bint kept
    cdef array.array _found

    @cython.locals(made=Arguments, count=Py_ssize_t, shift=Py_ssize_t, index=Py_ssize_t)
    cpdef Arguments copy(self)

    @cython.locals(start=Py_ssize_t, count=Py_ssize_t, begin=Py_ssize_t)
    cpdef Py_ssize_t append_to(self, bytearray target) except -1

    @cython.locals(buffer=bytearray, count=Py_ssize_t, index=Py_ssize_t, value=object)
    cpdef encode(self, list values)

    cpdef bytes bytes(self, Py_ssize_t index)
    cpdef bytes token(self, Py_ssize_t index)
    cpdef bint is_word(self, Py_ssize_t index, bytes word) except -1
    @cython.locals(start=Py_ssize_t)
    cpdef bint is_byte(self, Py_ssize_t index, int byte) except -1
    cpdef bint find_integer(self, Py_ssize_t index) except -1
    cpdef int find_id(self, Py_ssize_t index, u64 missing_seq) except -1
    cpdef int find_wire(self, Py_ssize_t start, Py_ssize_t end) except -1

cpdef parse_integer(bytes text)
