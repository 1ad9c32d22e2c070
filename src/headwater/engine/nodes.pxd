cimport cython


@cython.locals(at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
cpdef list elements(bytes wire)

cdef Py_ssize_t _with_backlen(Py_ssize_t size)

cpdef Py_ssize_t integer_bytes(long long value)

@cython.locals(length=Py_ssize_t)
cpdef Py_ssize_t element_bytes(bytes value)


cdef class NodeIndex:
    cdef public object _words
    cdef public object names
