cimport cython
from headwater.server.turn.node cimport Node
from headwater.server.session.output cimport Output
from headwater.server.session.session cimport Session
from headwater.server.net.sockets cimport Connection
from headwater.server.services.observability.traffic cimport Traffic


cdef class Driver:
    cdef object __weakref__
    cdef public Node node
    cdef public object failure
    cdef public dict connections
    cdef public Traffic traffic
    cdef public object _asyncio
    cdef public object _thread
    cdef public object _on_stop
    cdef public bint _stopped
    cdef public bint _turning
    cdef public bytearray _space
    cdef public list _queued
    cdef public dict _unstalled
    cdef public object _timer
    cdef public double _timer_at
    cdef public object _second

    @cython.locals(connection=Connection)
    cpdef _on_output(self, Session session)
    cpdef _send_all(self)
    @cython.locals(queued=list, connection=Connection)
    cpdef _send_queued(self)
    @cython.locals(count=Py_ssize_t, session=Session, output=Output)
    cpdef _send(self, Connection connection)
    @cython.locals(count=Py_ssize_t, session=Session)
    cpdef bint _receive(self, Connection connection) except -1
    cpdef run_turn(self, list ready)
    cpdef _after_turn(self)
