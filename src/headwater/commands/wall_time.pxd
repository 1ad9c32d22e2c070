cimport cython


@cython.final
cdef class WallOffset:
    cdef public long long ahead_ms

    cpdef long long steady_ms(self, wall_ms) except? -1
    cpdef long long wall_ms(self, steady_ms) except? -1
    cpdef WallOffset copy(self)
