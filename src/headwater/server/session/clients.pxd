cimport cython
from headwater.server.session.output cimport ClientMemory
from headwater.server.session.session cimport Session


@cython.final
cdef class Clients:
    cdef public dict sessions
    cdef public long long connections_seen
    cdef public list changed
    cdef public ClientMemory memory
    cdef public long long output_ahead_bytes
    cdef public long long query_buffer_limit
    cdef public object tls
    cdef public object settings
    cdef public long long _max_bulk_bytes
    cdef object _ids

    cpdef int wrote_to(self, Session session) except -1
