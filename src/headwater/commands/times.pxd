cimport cython
from headwater.resp.arguments cimport Arguments

cdef long long _MOST_MS


@cython.final
cdef class WallOffset:
    cdef public long long ahead_ms

    cpdef steady_ms(self, wall_ms)
    cpdef wall_ms(self, steady_ms)
    cpdef WallOffset copy(self)


@cython.locals(value=cython.longlong)
cpdef long long milliseconds(
    Arguments arguments, Py_ssize_t index, long long now_ms
) except? -1
