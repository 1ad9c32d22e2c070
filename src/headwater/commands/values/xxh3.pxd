cimport cython
from cpython.array cimport array
from headwater.memory_c cimport set_word, word_at

cdef unsigned long long _WORD, _LOW
cdef Py_ssize_t _STRIPES_OF_BLOCK


@cython.locals(number="Py_ssize_t", at="Py_ssize_t", one="unsigned long long")
cpdef add_stripes(array sums, array words, array secret, Py_ssize_t count)

@cython.locals(at="Py_ssize_t", word="unsigned long long", key="unsigned long long")
cpdef add_stripe(array sums, array words, Py_ssize_t first, array secret, Py_ssize_t offset)
