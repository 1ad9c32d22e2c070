cimport cython
from cpython cimport array
from headwater.memory_c cimport u64

cdef array.array _TABLE


@cython.locals(table=cython.ulonglong[::1], at=Py_ssize_t)
cpdef u64 crc64(bytearray data, Py_ssize_t start, Py_ssize_t end, u64 crc=*) except? 0

@cython.locals(
    made=bytearray, at=Py_ssize_t, end=Py_ssize_t, control=Py_ssize_t, length=Py_ssize_t,
    needed=Py_ssize_t, back=Py_ssize_t, run=bytes,
)
cpdef bytes decompress(bytes data, Py_ssize_t size)

@cython.locals(start=Py_ssize_t, run=bytearray)
cdef _repeat(bytearray made, Py_ssize_t back, Py_ssize_t length)
