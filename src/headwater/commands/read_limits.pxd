cimport cython

cdef Py_ssize_t _BULK_FRAME


@cython.final
@cython.freelist(4)
cdef class ReadLimits:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t maxcount
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t entries
    cdef public Py_ssize_t size

    @cython.locals(share=Share)
    cpdef Share share(self, bytes key)
    cpdef Py_ssize_t most(self) except? -1


@cython.final
@cython.freelist(4)
cdef class Share:
    cdef public ReadLimits limits
    cdef public Py_ssize_t most
    cdef public Py_ssize_t maxsize
    cdef public Py_ssize_t taken
    cdef public Py_ssize_t size

    cdef begin(self, ReadLimits limits, bytes key)
    cpdef Py_ssize_t left(self) except? -1
    cpdef bint full(self) except -1
    cpdef add(self, Py_ssize_t size)
    cpdef close(self)
