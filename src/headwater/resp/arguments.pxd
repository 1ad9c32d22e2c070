cdef class Arguments:
    cdef public bytearray buffer
    cdef public unsigned long long[::1] starts
    cdef public unsigned long long[::1] ends
    cdef public Py_ssize_t count
    cdef public bint canonical

    cpdef bytes bytes(self, Py_ssize_t index)
    cpdef bytes token(self, Py_ssize_t index)
    cpdef bytes wire(self, Py_ssize_t start, Py_ssize_t end)
