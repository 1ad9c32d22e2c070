cimport cython
from headwater.commands.call cimport Call
from headwater.commands.dispatch cimport KnownCommand
from headwater.memory_c cimport cut, empty
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter
from headwater.resp.scanner cimport Scanner
from headwater.server.session.user cimport User
from headwater.server.session.transaction_queue cimport TransactionQueue

cdef Py_ssize_t _KEPT_BYTES


@cython.final
cdef class Session:
    cdef public Py_ssize_t id
    cdef public str kind
    cdef public str address
    cdef public str local_address
    cdef public object on_output
    cdef public Scanner scanner
    cdef public bytearray outbox
    cdef public bytearray released
    cdef public ReplyWriter reply
    cdef public Call call
    cdef public long long released_bytes
    cdef public long long taken_bytes
    cdef public bytearray pushes
    cdef public object subscriptions
    cdef public bint subscribed
    cdef public bint stalled
    cdef public double created
    cdef public double last_interaction
    cdef public KnownCommand last
    cdef public bytes name
    cdef public bytes lib_name
    cdef public bytes lib_version
    cdef public User user
    cdef public bint authenticated
    cdef public bint closed
    cdef public bint closing
    cdef public bint blocked
    cdef public TransactionQueue queued
    cdef public bint queue_failed
    cdef public object watch
    cdef public str reply_mode
    cdef public bint monitoring
    cdef public long long spent_ns
    cdef public bint changed
    cdef public long long wrote_turn
    cdef public Arguments postponed
    cdef public object driver

    cdef Py_ssize_t _kept_bytes
    cdef object _room

    cpdef bint release(self) except -1
    cpdef bytearray take_output(self)
    @cython.locals(taken=bytes)
    cpdef bytes take_bytes(self)
    @cython.locals(size=Py_ssize_t)
    cpdef int empty_released(self) except -1
    @cython.locals(more=Py_ssize_t)
    cdef bint _may_keep(self, Py_ssize_t size) except -1
    cpdef int tell(self) except -1
    cpdef Py_ssize_t input_bytes(self) except -1
    cpdef Py_ssize_t queued_bytes(self) except -1
