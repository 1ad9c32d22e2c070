from headwater.worker.declare.owned cimport Owned

cdef class Executor:
    cdef public object consumer
    cdef public object clock
    cdef public Py_ssize_t threads_busy
    cdef object _chain
    cdef object _decode
    cdef object _timeout_s
    cdef set _values
    cdef object _results
    cdef object _threads
    cdef object _processes
    cdef object _end_process
    cdef object _sync
    cdef dict _idents
    cdef object _forks
    cdef object _invocation
    cdef object _plain
    cpdef tuple decode(self, Owned owned)
