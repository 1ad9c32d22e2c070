cimport cython
from headwater.commands.call cimport Wait
from headwater.engine.database cimport Database
@cython.final
cdef class Waiter:
    cdef public object session
    cdef public Database db
    cdef public Wait wait
    cdef public double deadline
    cdef public long long arrival
    cdef public bint active
    cdef public bint due


@cython.final
cdef class Waiters:
    cdef dict _by_key
    cdef list _deadlines
    cdef list _rechecks
    cdef long long _ticket
    cdef public Py_ssize_t count

    cpdef double next_deadline(self) except? -1
    cpdef next_recheck(self)
    @cython.locals(queues=dict, queue=dict, key=bytes)
    cpdef add(self, Waiter waiter)
    cpdef recheck(self, Waiter waiter, at_ms)
    cdef _note_recheck(self, Waiter waiter)
    @cython.locals(queues=dict, queue=dict, keys=list, key=bytes)
    cpdef remove(self, Waiter waiter)
    cpdef dict queues_at(self, tuple place)
