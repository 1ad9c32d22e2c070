cimport cython
@cython.final
cdef class Waiter:
    cdef public object session
    cdef public object db
    cdef public object wait
    cdef public double deadline
    cdef public long long arrival
    cdef public bint active
    cdef public bint due


@cython.final
cdef class WaitingRoom:
    cdef dict _by_key
    cdef list _deadlines
    cdef list _rechecks
    cdef long long _ticket
    cdef public Py_ssize_t count

    cpdef double next_deadline(self) except? -1
    cpdef next_recheck(self)
