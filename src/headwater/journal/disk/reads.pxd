cimport cython
from headwater.common.forks cimport ForkGeneration
from headwater.journal.disk.page_cache_c cimport read_cached

cdef Py_ssize_t _SMALL_BYTES
cdef ForkGeneration FORKS


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
    cdef long long _generation
    cdef public object _mutex
    cdef object _open
    cdef long long _closings

    @cython.locals(file=_OpenFile)
    cpdef cached(self, str name, unsigned long long offset, Py_ssize_t length)
    @cython.locals(large=bint)
    cdef _cached_of(self, _OpenFile file, unsigned long long offset, Py_ssize_t length)
    cdef _check_process(self)
    @cython.locals(found=_OpenFile, made=_OpenFile, closings="long long")
    cdef _OpenFile _taken(self, str name)
    cdef _leave(self, _OpenFile file)


cdef _read_nowait(_OpenFile file, unsigned long long offset, Py_ssize_t length)
