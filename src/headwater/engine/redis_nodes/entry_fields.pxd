cimport cython
from cpython cimport array
from headwater.native.memory_c cimport append_part, offset_at, push_offset, push_word


@cython.locals(
    index=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t, count=Py_ssize_t
)
cpdef take_fields(
    bytearray data, array.array offsets, Py_ssize_t first, Py_ssize_t end, bytearray wire,
    array.array ends, array.array pairs,
)

@cython.locals(at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
cpdef list elements(bytes wire)

@cython.locals(found=bytearray, at=Py_ssize_t, stop=Py_ssize_t, behind=Py_ssize_t)
cpdef bytes field_names(bytearray wire, Py_ssize_t start, Py_ssize_t end)
