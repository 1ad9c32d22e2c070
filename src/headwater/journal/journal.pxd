from headwater.journal.flusher cimport Flusher
from headwater.journal.reserve cimport Reserve

cdef long long SYNCED_GROUP_BYTES, MAX_RECORD_GROUP_BYTES


cdef class Journal:
    cdef object __weakref__
    cdef public object recovery
    cdef public unsigned int seed
    cdef public str policy
    cdef public object failure
    cdef public long long allowance
    cdef public object _files
    cdef public Flusher _flusher
    cdef public str _name
    cdef long long _number
    cdef long long _size
    cdef public long long _end
    cdef public object _vouch
    cdef long long _pid
    cdef Reserve _reserve
    cdef str _state
    cdef long long _before
    cdef long long _base
    cdef bint _unsynced
    cdef bint _owed
    cdef bint _clean
    cdef long long _turn
    cdef long long _durable_turn
    cdef long long _now_ms
    cdef long long _fsyncs

    cdef _use(self, file)
    cpdef admits(self, long long nbytes)
    cdef _measure(self)
    cpdef commit(self, bytearray buffer, bint sync=*)
    cdef long long _room(self) except? -1
    cdef _append(self, groups)
    cdef _write(self, groups)
    cdef _check(self)
    cdef _check_failure(self)
    cdef _refuse_after_fork(self)
