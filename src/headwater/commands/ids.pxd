cimport cython
from cpython cimport array
from headwater.native.memory_c cimport new_words, set_word, u64, word_at
from headwater.resp.arguments cimport Arguments


@cython.locals(ids=array.array, index=Py_ssize_t)
cpdef array.array id_words(Arguments arguments, Py_ssize_t start, Py_ssize_t end)

@cython.locals(at=Py_ssize_t, ms=u64, before=u64)
cpdef array.array distinct(array.array ids)


cdef class IDBlock:
    cdef public Py_ssize_t start
    cdef public Py_ssize_t count

    cpdef Py_ssize_t take(self, Arguments arguments, Py_ssize_t index) except -1
    cpdef array.array parse(self, Arguments arguments)
