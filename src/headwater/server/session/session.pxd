cimport cython
from headwater.commands.call cimport Call
from headwater.commands.dispatch cimport KnownCommand
from headwater.resp.arguments cimport Arguments
from headwater.resp.scanner cimport Scanner
from headwater.server.session.client_info cimport ClientInfo
from headwater.server.session.output cimport Output
from headwater.server.session.subscriptions cimport Subscriptions
from headwater.server.session.transaction cimport Transaction
from headwater.server.session.user cimport User


@cython.final
cdef class Session:
    cdef public Py_ssize_t id
    cdef public ClientInfo client
    cdef public Call call
    cdef public User user
    cdef public object on_output
    cdef public Scanner scanner
    cdef public Output output
    cdef public Subscriptions subscriptions
    cdef public Transaction transaction
    cdef public KnownCommand last
    cdef public bint authenticated
    cdef public bint closed
    cdef public bint closing
    cdef public bint blocked
    cdef public str reply_mode
    cdef public long long commands
    cdef public long long spent_ns
    cdef public long long wrote_turn
    cdef public Arguments postponed
    cdef public object driver

    cpdef int tell(self) except -1
    cpdef Py_ssize_t input_bytes(self) except -1
