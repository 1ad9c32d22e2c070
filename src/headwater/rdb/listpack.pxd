cimport cython


@cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, body=Py_ssize_t, behind=Py_ssize_t)
cpdef list read(bytes data, object most=*)

@cython.locals(head=int, size=Py_ssize_t)
cdef Py_ssize_t _body(bytes data, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(head=int)
cdef object _value(bytes data, Py_ssize_t at, Py_ssize_t behind)

cpdef bytes backlen(Py_ssize_t size)
