cimport cython
@cython.final
cdef class ClientPause:
    cdef object _scripts
    cdef public double until
    cdef public bint active
    cdef public bint everything
    cdef dict _waiting
    cdef dict _missed
