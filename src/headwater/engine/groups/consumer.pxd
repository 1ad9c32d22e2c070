cimport cython


@cython.final
cdef class GroupConsumer:
    cdef public Py_ssize_t cid
    cdef public bytes name
    cdef public long long seen_time
    cdef public long long active_time
    cdef public Py_ssize_t pending
