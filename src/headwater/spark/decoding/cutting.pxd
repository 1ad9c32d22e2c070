cimport cython
from libc.string cimport memcmp, memcpy

cdef int _CR, _LF, _STAR, _DOLLAR, _ZERO, _MOST_DIGITS


# These take pointers, so they check bounds with exceptions: python -O would remove an assert.
cdef inline bint same(
    const unsigned char[::1] buffer, Py_ssize_t at, const unsigned char[::1] other, Py_ssize_t start,
    Py_ssize_t length,
) except -1:
    if length < 0 or at < 0 or at > buffer.shape[0] - length:
        raise IndexError("beyond the buffer")
    if start < 0 or start > other.shape[0] - length:
        raise IndexError("beyond the separators")
    return length == 0 or memcmp(&buffer[at], &other[start], length) == 0


cdef inline int copy(
    unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start,
    Py_ssize_t length,
) except -1:
    if length < 0 or at < 0 or at > target.shape[0] - length:
        raise IndexError("beyond the column")
    if start < 0 or start > source.shape[0] - length:
        raise IndexError("beyond the buffer")
    if length:
        memcpy(&target[at], &source[start], length)
    return 0


@cython.locals(
    each=Py_ssize_t, places="int[::1]", chosen="long long[::1]", at=Py_ssize_t, value=Py_ssize_t,
    index=Py_ssize_t, _=Py_ssize_t,
)
cpdef bytearray repeated(list lengths, Py_ssize_t times)


cdef class ReplyCutter:
    cdef public bytearray buffer
    cdef public list names
    cdef public Py_ssize_t count
    cdef public Py_ssize_t end
    cdef Py_ssize_t _parts, _position, _start, _next, _known
    cdef bytes _separators
    cdef object _separator_starts
    cdef object _marks

    cpdef Py_ssize_t scan(self, bytearray buffer, Py_ssize_t size) except? -100
    @cython.locals(
        buffer=bytearray, first=Py_ssize_t, number=Py_ssize_t, digit=int,
    )
    cdef Py_ssize_t _number(self, int mark, Py_ssize_t at, Py_ssize_t size) except? -100
    @cython.locals(length=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t _bulk(self, Py_ssize_t at, Py_ssize_t size) except? -100
    @cython.locals(words=Py_ssize_t, word=Py_ssize_t, end=Py_ssize_t, marks=list, names=list)
    cdef Py_ssize_t _parse_first_entry(self, Py_ssize_t size) except? -100
    cdef _set_separators(self, list names)
    @cython.locals(
        view="const unsigned char[::1]", separators="const unsigned char[::1]",
        starts="long long[::1]", marks="unsigned int[::1]", position=Py_ssize_t, known=Py_ssize_t,
        parts=Py_ssize_t, total=Py_ssize_t, room=Py_ssize_t, part=Py_ssize_t, found=Py_ssize_t,
        start=Py_ssize_t, length=Py_ssize_t,
    )
    cdef Py_ssize_t _scan_entries(self, Py_ssize_t size) except? -100
    cdef _grow(self)
    @cython.locals(buffer=bytearray, position=Py_ssize_t)
    cdef Py_ssize_t _check_end(self, Py_ssize_t size) except? -100

    cpdef bytes value(self, Py_ssize_t entry, Py_ssize_t part)
    @cython.locals(
        marks="unsigned int[::1]", places="int[::1]", chosen="long long[::1]", parts=Py_ssize_t,
        total=Py_ssize_t, value=Py_ssize_t, entry=Py_ssize_t, index=Py_ssize_t, place=Py_ssize_t,
        count=Py_ssize_t,
    )
    cdef Py_ssize_t _measure(self, object wanted, Py_ssize_t each, object offsets) except? -100
    @cython.locals(
        marks="unsigned int[::1]", view="const unsigned char[::1]", target="unsigned char[::1]",
        chosen="long long[::1]", parts=Py_ssize_t, at=Py_ssize_t, entry=Py_ssize_t,
        index=Py_ssize_t, place=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, count=Py_ssize_t,
    )
    cdef _copy(self, object wanted, Py_ssize_t each, bytearray data)
