cimport cython
from headwater.commands.call cimport Call, Wait
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.server.services.pausing cimport ClientPause
from headwater.server.services.records cimport TurnRecords
from headwater.server.services.runner cimport Runner
from headwater.server.services.turn_clock cimport TurnClock
from headwater.server.session.clients cimport Clients
from headwater.server.session.session cimport Session
from headwater.server.services.waiting cimport Waiter, Waiters


@cython.final
cdef class BlockedClients:
    cdef public Waiters waiting
    cdef public ClientPause pause
    cdef dict _waiters
    cdef Keyspace _keyspace
    cdef TurnClock _times
    cdef TurnRecords _records
    cdef Clients _clients
    cdef object _observer
    cdef object _logins
    cdef Runner _runner
    cdef public list resumed
    cdef public object offloading
    cdef public object cold_reads

    @cython.locals(deadline=double, waiter=Waiter)
    cpdef block(self, Session session, wait)
    cdef _give_up(self, Waiter waiter, bint error)
    cdef _leave(self, Waiter waiter)
    cdef _forget(self, Waiter waiter)
    @cython.locals(keyspace=Keyspace, signalled=dict, place=tuple, queues=dict)
    cpdef serve_signalled(self)
    @cython.locals(queue=dict, held=Py_ssize_t, waiter=Waiter)
    cdef _serve(self, dict queues, value)
    cdef bint _wake(self, value, Waiter waiter) except -1
    @cython.locals(
        session=Session, records=TurnRecords, call=Call, facts_mark=Py_ssize_t, mark=Py_ssize_t,
        again=Wait, refused=bint,
    )
    cdef bint _run(self, Waiter waiter) except -1
