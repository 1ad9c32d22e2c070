cimport cython
from headwater.clock cimport passed_ns
from headwater.commands.call cimport Call, StreamSettings
from headwater.engine.keyspace cimport Keyspace
from headwater.forks cimport Family
from headwater.resp.arguments cimport Arguments
from headwater.server.turn cimport execution
from headwater.server.services.observability.observer cimport Observer
from headwater.server.services.pausing cimport Pause
from headwater.server.services.records cimport TurnRecords
from headwater.server.session.session cimport Session
from headwater.server.services.turn_clock cimport TurnClock
from headwater.server.services.waiting cimport WaitingRoom

cdef Family FAMILY


@cython.final
cdef class Node:
    cdef object __weakref__
    cdef public Keyspace keyspace
    cdef public object journal
    cdef public object config
    cdef public object access
    cdef public object clock
    cdef public object lock
    cdef public StreamSettings settings
    cdef public TurnRecords records
    cdef public long long started_ms
    cdef public dict sessions
    cdef public WaitingRoom waiting
    cdef public object watches
    cdef public object scripts
    cdef public object pubsub
    cdef public Pause pause
    cdef public object blocked
    cdef public Observer observer
    cdef public bint expires_by_itself
    cdef public list after_commit
    cdef public long long connections_seen
    cdef public object poisoned
    cdef public bint stopping
    cdef public long long output_ahead_bytes
    cdef public long long output_room
    cdef public long long query_buffer_limit
    cdef public TurnClock times
    cdef Arguments _arguments
    cdef object _session_ids
    cdef public list _changed
    cdef public object sealer
    cdef public double _seen_deadline
    cdef long long _generation
    cdef list _resumed

    cpdef bytes exchange(self, Session session, bytes requests)
    cpdef turn(self, ready)
    cpdef turn_locked(self, ready)
    cpdef int wrote_to(self, Session session) except -1
    @cython.locals(session=Session)
    cdef _serve(self, ready)
    cdef int _check_process(self) except -1
    cdef int _check_journal(self) except -1
    cdef int _drain_resumed(self) except -1
    @cython.locals(keyspace=Keyspace)
    cdef _do_before(self, long long now_ms)
    @cython.locals(deadline=double)
    cpdef next_deadline(self)
    @cython.locals(room="long long", facts_mark=Py_ssize_t)
    cpdef _drain(self, Session session)
    @cython.locals(
        call=Call, keyspace=Keyspace, reply_mark=Py_ssize_t, facts_mark=Py_ssize_t, silent=bint
    )
    cpdef run(self, Session session, Arguments arguments)
    @cython.locals(session=Session)
    cpdef _finish(self)
    cpdef _commit(self)
