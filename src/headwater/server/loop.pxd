cimport cython
from headwater.clock cimport passed_seconds
from headwater.server.driver cimport Driver
from headwater.server.session cimport Session
from headwater.server.sockets cimport Connection

cdef int _READABLE, _WRITABLE
cdef double LOOP_HOLD_SECONDS


cdef class EpollLoop(Driver):
    cdef public object _epoll
    cdef int _waker

    @cython.locals(began=double, now=double, wait=double)
    cpdef _on_ready(self)
    @cython.locals(events=list)
    cpdef bint _one_turn(self, double wait) except -1
    @cython.locals(
        ready=list, handshakes=Py_ssize_t, pair=tuple, event=int, connection=Connection
    )
    cdef bint _serve(self, list events) except -1


cdef class ReaderLoop(Driver):
    cdef public dict _ready
