cimport cython
from headwater.engine.accounts.memory_account cimport MemoryAccount, text_bytes


@cython.final
cdef class ValueAccount:
    cdef public MemoryAccount memory
    cdef public dict sizes
    cdef public Py_ssize_t bytes

    @cython.locals(total=Py_ssize_t)
    cpdef place(self, bytes key, value, Py_ssize_t size)
    @cython.locals(size=Py_ssize_t, value_size=Py_ssize_t)
    cpdef Py_ssize_t remove(self, bytes key, value) except -2
    cpdef resize(self, bytes key, Py_ssize_t change)
    cpdef int count(self, Py_ssize_t change) except -1


@cython.locals(grown=Py_ssize_t, field=bytes, text=bytes, old=bytes)
cpdef Py_ssize_t update_hash(value, pairs) except? -1

@cython.locals(found=list, place=Py_ssize_t, last=Py_ssize_t, one=bytes)
cpdef list places_of(value, bytes text, Py_ssize_t count, bint left)

@cython.locals(grown=Py_ssize_t, kept=list, place=Py_ssize_t, gone=Py_ssize_t)
cpdef Py_ssize_t remove_places(value, list places) except? -1

@cython.locals(grown=Py_ssize_t, member=bytes)
cpdef Py_ssize_t update_set(value, members) except? -1
