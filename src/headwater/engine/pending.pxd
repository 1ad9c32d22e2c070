cimport cython


cdef class PendingBlock:
    cdef public object words
    cdef public unsigned long long min_time
    cdef public unsigned long long owners

    cpdef Py_ssize_t count(self)
    @cython.locals(at=Py_ssize_t, words=object)
    cpdef Py_ssize_t first_of(self, unsigned long long owner, Py_ssize_t index)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, found="unsigned long long"
    )
    cpdef Py_ssize_t lower_bound(self, unsigned long long ms, unsigned long long seq)


cdef class PendingList:
    cdef public list blocks
    cdef public Py_ssize_t length
    cdef public dict big_counts

    cpdef Py_ssize_t find(self, unsigned long long ms, unsigned long long seq)
    @cython.locals(index=Py_ssize_t)
    cpdef Py_ssize_t seek(self, unsigned long long ms, unsigned long long seq)
    @cython.locals(block=Py_ssize_t)
    cpdef Py_ssize_t after(self, Py_ssize_t at)
    @cython.locals(block=Py_ssize_t)
    cpdef Py_ssize_t before(self, Py_ssize_t at)
    @cython.locals(number=Py_ssize_t, index=Py_ssize_t, found=Py_ssize_t)
    cpdef Py_ssize_t owned_from(self, Py_ssize_t at, unsigned long long owner)
    cpdef Py_ssize_t delivered_from(self, Py_ssize_t at, object time)
    cpdef Py_ssize_t block_start(self, Py_ssize_t block)
    @cython.locals(index=Py_ssize_t)
    cpdef tuple id(self, Py_ssize_t at)
    cpdef unsigned long long time(self, Py_ssize_t at)
    cpdef unsigned long long owner(self, Py_ssize_t at)
    @cython.locals(
        low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, found="unsigned long long"
    )
    cpdef Py_ssize_t _block_of(self, unsigned long long ms, unsigned long long seq)
