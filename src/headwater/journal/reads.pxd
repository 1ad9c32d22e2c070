cimport cython

cdef Py_ssize_t _SMALL_BYTES


@cython.final
cdef class _OpenFile:
    cdef public int descriptor
    cdef public bint dropped
    cdef public object in_memory
    cdef public bint nowait
    cdef public int users


@cython.final
cdef class DiskReads:
    cdef object __weakref__
    cdef object _directory
    cdef Py_ssize_t _most
    cdef object _pid
    cdef public object _mutex
    cdef object _open
    cdef long long _closings

    @cython.locals(file=_OpenFile, large=bint)
    cpdef cached(self, str name, unsigned long long offset, Py_ssize_t length)
    @cython.locals(found=_OpenFile, made=_OpenFile, closings="long long")
    cdef _OpenFile _taken(self, str name)
    cdef _leave(self, _OpenFile file)


@cython.locals(data=bytearray, done=Py_ssize_t)
cdef _read_nowait(_OpenFile file, unsigned long long offset, Py_ssize_t length)
