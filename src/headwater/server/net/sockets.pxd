cimport cython
from headwater.server.session.session cimport Session
from headwater.server.net.transfers_c cimport receive_some, send_some


cdef class Connection:
    cdef public object socket
    cdef public int descriptor
    cdef public Session session
    cdef public object chunks
    cdef public bint ended
    cdef public bint closed
    cdef public bint handshaking
    cdef public bint queued
    cdef public bint writing
    cdef public long long unsent
    cdef public double over_soft_since
    cdef public long long received
    cdef public long long sent

    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t receive(self, bytearray space) except -2
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t send(self) except -2
    cpdef queue_released(self)
    @cython.locals(released=bytearray, size=Py_ssize_t, count=Py_ssize_t)
    cdef Py_ssize_t _send_released(self) except -2
    cdef Py_ssize_t _send_chunks(self, chunks) except -2
