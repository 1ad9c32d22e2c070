cimport cython
from headwater.journal.log.flusher cimport Flusher
from headwater.journal.log.reserve cimport Reserve
from headwater.journal.log.writing cimport Writer

cdef long long FILE_HEADER_BYTES, SYNCED_GROUP_BYTES, MAX_RECORD_GROUP_BYTES


cdef class Journal:
    cdef object __weakref__
    cdef public object recovery
    cdef public unsigned int seed
    cdef public str policy
    cdef public object failure
    cdef public long long allowance
    cdef public long long grown_bytes
    cdef public long long offset
    cdef public object files
    cdef public object catalog
    cdef public Flusher _flusher
    cdef public Writer _writer
    cdef long long _pid
    cdef Reserve _reserve
    cdef str _state
    cdef long long _before
    cdef long long _base
    cdef bint _owed
    cdef long long _durable_turn
    cdef long long _fsyncs

    cpdef admits(self, long long nbytes)
    cdef _measure(self)
    cpdef long long commit(self, bytearray buffer, bint sync=*) except? -1
    cdef _check(self)
    cdef _check_failure(self)
    cdef _refuse_after_fork(self)
