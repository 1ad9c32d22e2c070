cimport cython
from cpython cimport array
from headwater.native.memory_c cimport cut, put_part, u64

cdef array.array _TABLE


@cython.locals(table=cython.ulonglong[::1], at=Py_ssize_t)
cpdef u64 crc64(bytearray data, Py_ssize_t start, Py_ssize_t end, u64 crc=*) except? 0

@cython.locals(
    made=bytearray, at=Py_ssize_t, done=Py_ssize_t, control=Py_ssize_t, length=Py_ssize_t,
    first=Py_ssize_t,
)
cpdef bytes decompress(bytearray data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size)

@cython.locals(run=Py_ssize_t)
cdef _repeat(bytearray made, Py_ssize_t first, Py_ssize_t at, Py_ssize_t length)
