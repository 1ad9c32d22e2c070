cimport cython


@cython.final
cdef class ForkGeneration:
    cdef public long long generation

    cpdef count_fork(self)
