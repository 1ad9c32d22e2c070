from headwater.engine.sealed_block cimport SealedBlock, unpacked


cdef class Bodies:
    cdef public object source
    cdef public bint may_wait
    cdef public long long most_bytes
    cdef public long long opened_count
    cdef dict _codecs
    cdef object _open
    cdef object _freed
    cdef long long _open_bytes
    cdef public bint holding
    cdef list _held
    cdef list _delivered

    cpdef open(self, SealedBlock packed)
    cpdef bint try_open(self, SealedBlock packed) except -1
    cpdef release(self)
    cpdef codec(self, str name)
    cdef _set(self, SealedBlock packed, bytearray data)
    cdef _hold(self, SealedBlock packed, list held)
    cdef _let_go(self, list held)
    cdef _keep_open(self, SealedBlock packed)
    cdef _forget_freed(self)
