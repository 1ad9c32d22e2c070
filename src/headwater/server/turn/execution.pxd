cimport cython
from headwater.common.clock cimport passed_ns
from headwater.commands.call cimport Call
from headwater.commands.dispatch cimport KnownCommand, find_command, find_like
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.resp.arguments cimport Arguments
from headwater.server.services.memory_use cimport MemoryUse
from headwater.server.services.observability.observer cimport CommandStatistics, Observer
from headwater.server.services.pausing cimport ClientPause
from headwater.server.services.runner cimport Runner
from headwater.server.services.state cimport NodeState
from headwater.server.services.turn_clock cimport TurnClock
from headwater.server.session.session cimport Session
from headwater.server.session.transaction cimport TransactionQueue


cdef class Execution(Runner):
    cdef public Keyspace keyspace
    cdef object _services
    cdef NodeState _state
    cdef TurnClock _times
    cdef Observer _observer
    cdef ClientPause _pause
    cdef object _pubsub
    cdef public bint patient
    cdef MemoryUse _memory

    @cython.locals(mark=Py_ssize_t, chosen=KnownCommand, known=KnownCommand)
    cdef execute(self, Session session, Arguments arguments)
    cdef _refusal(self, Session session, KnownCommand known, raised)
    cdef _failure(
        self, Session session, KnownCommand known, Arguments arguments, long long began, raised
    )
    cdef _check_gates(self, Session session, KnownCommand known, Arguments arguments)
    @cython.locals(queue=TransactionQueue, enlarges=bint)
    cdef _check_memory(self, Session session, KnownCommand known, Arguments arguments)
    cpdef run_again(self, Session session, Arguments arguments)
    cpdef run_queued(self, Session session, TransactionQueue queue)
    @cython.locals(
        known=KnownCommand, arguments=Arguments, outbox=bytearray, mark=Py_ssize_t,
        began="long long", call=Call, changed=bint,
    )
    cdef _run_each(self, Session session, TransactionQueue queue)
    cdef _check_queued(self, Session session, KnownCommand known, Arguments arguments)
    cpdef run(
        self, Session session, KnownCommand known, Arguments arguments, long long began
    )
    @cython.locals(took="long long")
    cdef _failed(
        self, Session session, KnownCommand known, Arguments arguments, long long began, error
    )
    @cython.locals(
        call=Call, observer=Observer, timing=bint, took="long long", statistics=CommandStatistics
    )
    cdef _run(
        self, Session session, KnownCommand known, Arguments arguments, long long began
    )
    @cython.locals(
        keyspace=Keyspace, hits="long long", misses="long long", events=Py_ssize_t,
        written=Py_ssize_t,
    )
    cdef _run_stored(self, Call call, KnownCommand known)
