cimport cython


@cython.final
cdef class ClientInfo:
    cdef public str kind
    cdef public str address
    cdef public str local_address
    cdef public double created
    cdef public double last_interaction
    cdef public str role
    cdef public bytes name
    cdef public bytes lib_name
    cdef public bytes lib_version
