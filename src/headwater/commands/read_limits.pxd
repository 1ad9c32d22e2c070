cdef class ReadLimits:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t maxcount
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t entries
    cdef public Py_ssize_t size

    cpdef Py_ssize_t most(self) except? -1


cdef class Share:
    cdef public ReadLimits limits
    cdef public Py_ssize_t most
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t taken
    cdef public Py_ssize_t size

    cpdef Py_ssize_t left(self) except? -1
    cpdef bint full(self) except -1
    cpdef add(self, Py_ssize_t size)
    cpdef close(self)
