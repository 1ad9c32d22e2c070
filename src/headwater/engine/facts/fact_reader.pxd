cimport cython
from cpython cimport array
from headwater.native.memory_c cimport empty, u32, u64
from headwater.native.views_c cimport (
    append_view, cut_view, view_i64, view_u8, view_u32, view_u64, view_words,
)

cdef array.array _LIKE


@cython.final
cdef class FactReader:
    cdef public object data
    cdef public Py_ssize_t start
    cdef public Py_ssize_t at
    cdef public Py_ssize_t end
    cdef public int kind
    cdef public long long now_ms

    cpdef attach(self, data)
    cpdef select(self, Py_ssize_t start, Py_ssize_t end, long long now_ms)
    cpdef Py_ssize_t left(self)
    cpdef u32 take_u8(self) except? 0
    cpdef u32 take_u32(self) except? 0
    cpdef u64 take_u64(self) except? 0
    cpdef long long take_i64(self) except? 0
    @cython.locals(at=Py_ssize_t)
    cpdef tuple take_id(self)
    @cython.locals(at=Py_ssize_t, one=Py_ssize_t)
    cpdef list take_ids(self, Py_ssize_t count)
    cpdef array.array take_words(self, Py_ssize_t count)
    @cython.locals(at=Py_ssize_t)
    cpdef bytes take_bytes(self, Py_ssize_t length)
    @cython.locals(at=Py_ssize_t)
    cpdef take_into(self, Py_ssize_t length, bytearray target)
    cpdef bytes take_text(self)
    @cython.locals(count=Py_ssize_t)
    cpdef list take_texts(self)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _pass(self, Py_ssize_t length) except -1
