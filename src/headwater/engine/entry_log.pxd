cimport cython


cdef class EntryBlock:
    cdef public bytearray data
    cdef public object ids
    cdef public object offsets
    cdef public object dead
    cdef public Py_ssize_t head
    cdef public Py_ssize_t count
    cdef public Py_ssize_t live
    cdef public Py_ssize_t dead_bytes
    cdef public bint shared

    cpdef Py_ssize_t start(self, Py_ssize_t index)
    cpdef bint lives(self, Py_ssize_t index)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, found="unsigned long long"
    )
    cpdef Py_ssize_t lower_bound(self, unsigned long long ms, unsigned long long seq)


cdef class EntryLog:
    cdef public list blocks
    cdef public Py_ssize_t length

    @cython.locals(block=EntryBlock)
    cpdef append(self, unsigned long long ms, unsigned long long seq, bytes wire, Py_ssize_t pairs)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, block=EntryBlock, last=Py_ssize_t,
        found="unsigned long long",
    )
    cpdef Py_ssize_t _block_of(self, unsigned long long ms, unsigned long long seq)
