cimport cython


@cython.final
cdef class Family:
    cdef public long long generation

    cpdef descend(self)
