cimport cython
from headwater.commands.dispatch cimport KnownCommand
from headwater.resp.arguments cimport Arguments
from headwater.resp.scanner cimport Scanner
from headwater.server.session.output cimport ClientMemory

cdef Py_ssize_t _POINTER_BYTES


@cython.final
cdef class TransactionQueue:
    cdef public list commands
    cdef public Py_ssize_t size
    cdef public bint writes
    cdef public bint enlarges
    cdef bytearray _wire
    cdef Scanner _scanner
    cdef ClientMemory _memory

    @cython.locals(size=Py_ssize_t)
    cpdef int add(self, KnownCommand known, Arguments arguments) except -1
    cpdef begin(self)
    cpdef bint next(self, Arguments arguments) except -1


@cython.final
cdef class Transaction:
    cdef public TransactionQueue queue
    cdef public bint failed
    cdef public object watch

    cpdef Py_ssize_t queued_bytes(self) except -1
