cimport cython
from cpython cimport array
from headwater.native.memory_c cimport (
    append_part, offset_at, push_id, push_offset, push_word, put_u8, u64, word_at,
)
from headwater.rdb.listpack cimport Cursor, put_integer, put_text

cdef long long _DELETED, _SAME_FIELDS
cdef u64 _ALL
cdef long long _ENTRY_BYTES, _ELEMENT_BYTES


@cython.final
cdef class NodeReader:
    cdef Cursor _cursor
    cdef u64 _first_ms
    cdef u64 _first_seq
    cdef public long long size
    cdef long long _most_bytes
    cdef object _node
    cdef array.array _ids
    cdef array.array _ends
    cdef array.array _pairs
    cdef bytearray _wire
    cdef bytearray _dead
    cdef bytearray _names
    cdef array.array _name_ends
    cdef long long _names_bytes
    cdef Py_ssize_t _alive
    cdef long long _said_live
    cdef long long _said_deleted

    cpdef bint step(self, Py_ssize_t most) except -1
    @cython.locals(number="long long")
    cdef int _read_names(self, long long count) except -1
    @cython.locals(
        cursor=Cursor, taken=Py_ssize_t, flags="long long", ms=u64, seq=u64, pairs="long long",
        before=Py_ssize_t,
    )
    cdef int _read_entry(self) except -1
    cdef int _charge(self, long long pairs, long long more) except -1
    @cython.locals(
        cursor=Cursor, wire=bytearray, start=Py_ssize_t, end=Py_ssize_t, number=Py_ssize_t
    )
    cdef int _take_values(self) except -1
    @cython.locals(cursor=Cursor, wire=bytearray, number="long long")
    cdef int _take_pairs(self, long long pairs) except -1


@cython.final
cdef class NodeWriter:
    cdef public bytearray pack
    cdef u64 _first_ms
    cdef u64 _first_seq
    cdef array.array _ids
    cdef array.array _ends
    cdef array.array _pairs
    cdef bytearray _wire
    cdef bytearray _dead
    cdef bytearray _names
    cdef Py_ssize_t _at
    cdef Py_ssize_t _elements
    cdef Py_ssize_t _start
    cdef Py_ssize_t _stop

    @cython.locals(count=Py_ssize_t)
    cpdef bint step(self, Py_ssize_t most) except -1
    @cython.locals(
        at=Py_ssize_t, end=Py_ssize_t, same=bint, before=Py_ssize_t, named=bint
    )
    cdef int _write_entry(self, Py_ssize_t number) except -1
    @cython.locals(wire=bytearray, names=bytearray, done=Py_ssize_t, behind=Py_ssize_t)
    cdef bint _has_names(self, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(wire=bytearray, size=Py_ssize_t)
    cdef Py_ssize_t _bulk(self, Py_ssize_t at) except -1
    cdef int _put_bulk(self) except -1
    cdef int _put_number(self, u64 number) except -1
    @cython.locals(wrapped=u64, negative=bint)
    cdef int _put_difference(self, u64 value, u64 master) except -1


cpdef keep(node, list numbers)

@cython.locals(at=Py_ssize_t, next_ms=u64, next_seq=u64)
cpdef bint rises(array.array ids, u64 ms, u64 seq) except -1
