cimport cython


@cython.final
cdef class WallOffset:
    cdef public long long ahead_ms

    cpdef steady_ms(self, wall_ms)
    cpdef wall_ms(self, steady_ms)
    cpdef WallOffset copy(self)
