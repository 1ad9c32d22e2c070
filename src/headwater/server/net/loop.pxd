cimport cython
from cpython cimport array
from headwater.common.clock cimport passed_seconds
from headwater.native.memory_c cimport new_words, word_at
from headwater.server.net.driver cimport Driver
from headwater.server.net.polling_c cimport wait_ready
from headwater.server.session.session cimport Session
from headwater.server.net.sockets cimport Connection

cdef int _READABLE, _WRITABLE
cdef double LOOP_HOLD_SECONDS


cdef class EpollLoop(Driver):
    cdef public object _epoll
    cdef int _descriptor
    cdef array.array _found
    cdef int _waker

    @cython.locals(began=double, now=double, wait=double)
    cpdef _on_ready(self)
    @cython.locals(count=Py_ssize_t)
    cpdef bint _one_turn(self, double wait) except -1
    @cython.locals(
        ready=list, handshakes=Py_ssize_t, at=Py_ssize_t, descriptor=int, event=int,
        connection=Connection,
    )
    cdef bint _serve(self, Py_ssize_t count) except -1


cdef class ReaderLoop(Driver):
    cdef public dict _ready
