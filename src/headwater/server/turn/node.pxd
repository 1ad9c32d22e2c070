cimport cython
from headwater.common.clock cimport passed_ns
from headwater.commands.call cimport Call
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.common.forks cimport ForkGeneration
from headwater.resp.arguments cimport Arguments
from headwater.server.services.blocking cimport BlockedClients
from headwater.server.services.observability.observer cimport Observer
from headwater.server.services.records cimport TurnRecords
from headwater.server.services.state cimport NodeState
from headwater.server.services.turn_clock cimport TurnClock
from headwater.server.services.waiting cimport Waiters
from headwater.server.session.clients cimport Clients
from headwater.server.session.output cimport Output
from headwater.server.session.session cimport Session
from headwater.server.turn.execution cimport Execution

cdef ForkGeneration FORKS


@cython.final
cdef class Node:
    cdef object __weakref__
    cdef public Keyspace keyspace
    cdef public object journal
    cdef public object clock
    cdef public object lock
    cdef public object services
    cdef public NodeState state
    cdef public Clients clients
    cdef public TurnRecords records
    cdef public TurnClock times
    cdef public BlockedClients blocked
    cdef public Observer observer
    cdef public Execution execution
    cdef public object sealer
    cdef list _resumed
    cdef object _sealed
    cdef Arguments _arguments
    cdef public double _seen_deadline
    cdef bint _preparing
    cdef long long _generation

    cpdef bytes exchange(self, Session session, bytes requests)
    cpdef turn(self, ready)
    cpdef turn_locked(self, ready)
    @cython.locals(session=Session)
    cdef _serve(self, ready)
    cdef int _check_process(self) except -1
    cdef int _check_journal(self) except -1
    cdef _next_event_ms(self)
    cdef bint _deletes_expired(self)
    cdef int _drain_resumed(self) except -1
    @cython.locals(keyspace=Keyspace)
    cdef _prepare(self, long long now_ms)
    @cython.locals(deadline=double, waiting=Waiters)
    cpdef next_deadline(self)
    @cython.locals(output=Output, room="long long", facts_mark=Py_ssize_t, reading=bint)
    cpdef _drain(self, Session session)
    @cython.locals(
        call=Call, keyspace=Keyspace, reply_mark=Py_ssize_t, facts_mark=Py_ssize_t, silent=bint
    )
    cpdef run(self, Session session, Arguments arguments)
    @cython.locals(session=Session)
    cpdef _finish(self)
    cpdef _commit(self)
