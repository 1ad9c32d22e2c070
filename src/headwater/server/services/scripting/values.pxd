cimport cython
from headwater.resp.replies cimport ReplyWriter

cdef int _INTEGER, _BULK, _ERROR, _ARRAY, _STATUS, _MINUS


@cython.locals(kind=int, end=Py_ssize_t)
cpdef reply_words(bytearray data)

@cython.final
cdef class _ReplyDecoder:
    cdef bytearray _data
    cdef Py_ssize_t _at
    cdef public list words

    @cython.locals(data=bytearray, start=Py_ssize_t, words=list, kind=int, end=Py_ssize_t, rest=bytearray)
    cpdef value(self)
    @cython.locals(index=Py_ssize_t)
    cdef _items(self, bytearray count)
    cdef _resp3(self, int kind, bytearray rest)
    cdef bytes _text(self, Py_ssize_t length)
