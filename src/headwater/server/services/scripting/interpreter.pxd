cimport cython
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter


@cython.final
cdef class Interpreter:
    cdef object _lua
    cdef Py_ssize_t _most
    cdef object _used
    cdef bint _is_bound
    cdef tuple _problems
    cdef object _type
    cdef object _null
    cdef public double deadline_ns
    cdef Py_ssize_t _collect_above
    cdef object _broken
    cdef int _calls
    cdef object _box
    cdef object _in_box
    cdef public object current
    cdef public Arguments arguments
    cdef public ReplyWriter reply
    cdef object _compile
    cdef object _run
    cdef object _run_bounded

    cpdef make_room(self, Py_ssize_t size)
    cpdef bint expired(self) except -1
    cdef _words(self, tuple outcome)
    cdef _collect(self)
    cdef tuple _boxed(self, Py_ssize_t count)
    cpdef _bound(self)
    cpdef _unbound(self)
    cpdef run(self, script, tuple words, Py_ssize_t key_count, double seconds)
    cpdef _on_call(self, tuple words)
    cdef bint _is_roomy(self, Py_ssize_t size) except -1


@cython.locals(total=Py_ssize_t, word=bytes)
cdef Py_ssize_t _size(tuple words) except -1
