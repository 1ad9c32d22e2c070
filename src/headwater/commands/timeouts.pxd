cimport cython
from headwater.resp.arguments cimport Arguments

cdef long long _MOST_MS


@cython.locals(value=cython.longlong)
cpdef long long milliseconds(
    Arguments arguments, Py_ssize_t index, long long now_ms
) except? -1
