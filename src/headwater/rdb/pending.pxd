cimport cython
from cpython cimport array
from headwater.native.memory_c cimport (
    offset_at, push_offset, push_word, put_u8, put_u64, set_offset, u32, u64, word_at,
)

cdef Py_ssize_t _WORDS, _FIXED_BYTES
cdef u64 _SIGN


@cython.locals(
    data=bytearray, words=array.array, owners=array.array, size=Py_ssize_t, last_ms=u64,
    last_seq=u64, first=bint, at=Py_ssize_t, limit=Py_ssize_t, ms=u64, seq=u64, time=u64,
    deliveries=u64,
)
cpdef read(reader, pending, Py_ssize_t count)

cpdef array.array read_ids(reader, Py_ssize_t count)

@cython.locals(
    words=array.array, owners=array.array, at=Py_ssize_t, place=Py_ssize_t, ms=u64, seq=u64,
)
cpdef claim(pending, array.array ids, u32 owner)

@cython.locals(owners=array.array, found=Py_ssize_t, at=Py_ssize_t)
cpdef Py_ssize_t unclaimed(pending) except -1

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, found=u64, found_seq=u64)
cdef Py_ssize_t _find(array.array words, Py_ssize_t near, u64 ms, u64 seq) except -2

@cython.locals(number=u64, place=Py_ssize_t)
cdef u64 _big_endian(bytearray data, Py_ssize_t at) except? 0
@cython.locals(number=u64, place=Py_ssize_t)
cdef u64 _little_endian(bytearray data, Py_ssize_t at) except? 0

@cython.locals(words=array.array, number=Py_ssize_t, at=Py_ssize_t, deliveries=u64)
cpdef write(bytearray out, pending, Py_ssize_t first, Py_ssize_t end)

@cython.locals(words=array.array, place=Py_ssize_t, at=Py_ssize_t)
cpdef write_ids(bytearray out, pending, array.array order, Py_ssize_t first, Py_ssize_t end)

@cython.locals(at=Py_ssize_t)
cpdef write_words(bytearray out, array.array ids)

@cython.locals(shift=int)
cdef int _put_big_endian(bytearray out, u64 number) except -1

@cython.locals(
    owners=array.array, at=Py_ssize_t, owner=Py_ssize_t, place=Py_ssize_t, begins=array.array,
    order=array.array,
)
cpdef tuple of_each(pending, Py_ssize_t consumers)

@cython.locals(
    owners=array.array, words=array.array, order=array.array, sound=bint, last=u64,
    number=Py_ssize_t, time=u64, times=list,
)
cpdef array.array owned(pending, Py_ssize_t first, Py_ssize_t end)

@cython.locals(
    words=array.array, order=array.array, at=Py_ssize_t, at_other=Py_ssize_t, place=Py_ssize_t,
    count=Py_ssize_t, other_count=Py_ssize_t,
)
cpdef array.array merged(pending, array.array one, array.array other)

@cython.locals(owners=array.array, at=Py_ssize_t, owner=u32, limit=Py_ssize_t)
cpdef Py_ssize_t run_end(
    pending, array.array order, Py_ssize_t first, Py_ssize_t most
) except -1

@cython.locals(words=array.array, found=array.array, place=Py_ssize_t, at=Py_ssize_t, word=Py_ssize_t)
cpdef array.array records(pending, array.array order, Py_ssize_t first, Py_ssize_t end)

@cython.locals(order=array.array, near=Py_ssize_t, place=Py_ssize_t)
cpdef array.array of_ids(pending, array.array ids)

@cython.locals(
    words=array.array, ids=array.array, dead=bytearray, entry=Py_ssize_t, ms=u64, seq=u64,
    entry_ms=u64, entry_seq=u64,
)
cpdef tuple pass_live(pending, Py_ssize_t at, node)
