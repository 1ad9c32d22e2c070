cimport cython
from headwater.native.memory_c cimport (
    append_bytes, append_header, append_part, cut, put_u8, put_u32, set_u32, u64,
)

cdef Py_ssize_t _FRAME
cdef int _UNKNOWN_COUNT, _END, _DOLLAR, _MINUS
cdef bytes _CRLF
cdef u64 _ALL, _HALF


@cython.final
cdef class Cursor:
    cdef public bytearray pack
    cdef public Py_ssize_t at
    cdef public Py_ssize_t end
    cdef public Py_ssize_t most
    cdef public Py_ssize_t taken
    cdef public bint is_text
    cdef public long long number
    cdef public Py_ssize_t start
    cdef public Py_ssize_t stop

    cpdef bint left(self) except -1
    @cython.locals(body=Py_ssize_t, behind=Py_ssize_t)
    cpdef int next(self) except -1
    @cython.locals(counted=int)
    cpdef int finish(self) except -1
    cpdef long long integer(self) except *
    cpdef element(self)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t put_bulk(self, bytearray wire) except -1
    @cython.locals(
        pack=bytearray, at=Py_ssize_t, head=int, skip=Py_ssize_t, size=Py_ssize_t, number=int
    )
    cdef Py_ssize_t _body(self) except -1
    @cython.locals(number="long long", at=Py_ssize_t)
    cdef int _take_integer(self, Py_ssize_t start, Py_ssize_t stop) except -1
    @cython.locals(count=int, shift=int, at=Py_ssize_t, byte=int)
    cdef int _pass_backlen(self, Py_ssize_t behind, Py_ssize_t body) except -1


cpdef list read(bytearray pack, Py_ssize_t most=*)

cdef int _backlen_bytes(Py_ssize_t size) except -1

@cython.locals(
    negative=bint, magnitude=u64, digits=Py_ssize_t, power=u64, rest=u64, size=Py_ssize_t
)
cdef Py_ssize_t _put_number(bytearray wire, long long number) except -1

cpdef int begin(bytearray pack) except -1
@cython.locals(counted=int)
cpdef int end(bytearray pack, Py_ssize_t elements) except -1
@cython.locals(bits=u64, most=u64, width=int, head=int)
cpdef put_integer(bytearray pack, bint negative, u64 magnitude)
@cython.locals(size=Py_ssize_t, negative=bint, magnitude=u64, head=int)
cpdef put_text(bytearray pack, bytearray source, Py_ssize_t start, Py_ssize_t stop)
@cython.locals(number=u64, at=Py_ssize_t, digit=int)
cdef u64 _spelled(bytearray source, Py_ssize_t start, Py_ssize_t stop) except? 0
@cython.locals(count=int, shift=int, at=int, byte=int)
cdef int _put_backlen(bytearray pack, Py_ssize_t size) except -1
