cimport cython
from headwater.engine.accounts.memory_account cimport text_bytes
from headwater.engine.shared.signals cimport KeySignals
from headwater.engine.accounts.value_account cimport ValueAccount
from headwater.native.memory_c cimport splice

cdef Py_ssize_t UNCOUNTED


@cython.final
cdef class Database(KeySignals):
    cdef public dict values
    cdef public object order
    cdef public dict expiries
    cdef public list expiry_notes
    cdef public dict used
    cdef public Py_ssize_t noted_bytes
    cdef public Py_ssize_t used_bytes
    cdef public bytes newest
    cdef public ValueAccount account

    cpdef lookup(self, bytes key, long long now_ms)
    cpdef use(self, bytes key, value, long long now_ms)
    cpdef set_string(self, bytes key, bytes value)
    cpdef write_string(self, bytes key, Py_ssize_t at, bytes part)
    cpdef rename(self, bytes key, Database target, bytes name)
    cpdef copy(self, bytes key, Database target, bytes name, sid, gids)
    cdef _place(self, bytes key, value, bint new, Py_ssize_t size)
