cimport cython
from headwater.commands.call cimport Wait
from headwater.engine.keyspace.database cimport Database
from headwater.engine.accounts.memory_account cimport text_bytes
from headwater.resp.arguments cimport Arguments
from headwater.server.session.output cimport ClientMemory

cdef Py_ssize_t _WAITER_BYTES, _ARGUMENT_BYTES, _WAITED_BYTES, _STALE_NOTES


@cython.final
cdef class Waiter:
    cdef public object session
    cdef public Database db
    cdef public Wait wait
    cdef public double deadline
    cdef public long long arrival
    cdef public bint active
    cdef public bint due
    cdef public Py_ssize_t held_bytes


@cython.final
cdef class Waiters:
    cdef ClientMemory _memory
    cdef Py_ssize_t _queue_count
    cdef dict _by_key
    cdef list _deadlines
    cdef list _rechecks
    cdef long long _ticket
    cdef public Py_ssize_t count

    cpdef double next_deadline(self) except? -1
    cpdef next_recheck(self)
    @cython.locals(
        queues=dict, queue=dict, key=bytes, arguments=Arguments, held=Py_ssize_t
    )
    cpdef add(self, Waiter waiter)
    cpdef recheck(self, Waiter waiter, at_ms)
    cdef _note_recheck(self, Waiter waiter)
    @cython.locals(queues=dict, queue=dict, keys=list, key=bytes)
    cpdef remove(self, Waiter waiter)
    cpdef dict queues_at(self, tuple place)
