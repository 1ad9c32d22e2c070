cimport cython
from headwater.commands.call cimport Call, StreamSettings
from headwater.commands.xtrim cimport Trim
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport u64
from headwater.resp.arguments cimport Arguments

cdef int _STAR
cdef u64 MAX_U64
cdef Py_ssize_t HEADROOM
cdef unsigned int STREAM


@cython.final
@cython.freelist(8)
cdef class AddRequest:
    cdef public bytes key
    cdef public bint makes_stream
    cdef public bint id_given
    cdef public bint seq_given
    cdef public u64 ms
    cdef public u64 seq
    cdef public object iid
    cdef public Trim trim
    cdef public Py_ssize_t start
    cdef public Py_ssize_t end
    cdef public Py_ssize_t pairs
    cdef public Py_ssize_t max_bytes

    cpdef begin(self, bytes key)

    @cython.locals(following=Py_ssize_t)
    cpdef Py_ssize_t take_options(self, Arguments arguments, Py_ssize_t index) except -1
    @cython.locals(following=Py_ssize_t, word=bytes)
    cdef Py_ssize_t _option(self, Arguments arguments, Py_ssize_t index) except -1
    @cython.locals(trim=Trim, following=Py_ssize_t)
    cpdef Py_ssize_t take_trim(self, Arguments arguments, Py_ssize_t index) except -1
    cpdef take_id(self, Arguments arguments, Py_ssize_t index)
    cpdef int take_fields(self, Arguments arguments, Py_ssize_t first, Py_ssize_t end) except -1
    cpdef int check(self, StreamSettings settings) except -1
    cpdef int check_id(self) except -1
    cpdef choose_id(self, u64 last_ms, u64 last_seq, long long wall_ms)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t fact_bytes(self, StoredStream stream) except -1
    @cython.locals(settings=StreamSettings, wire=bytearray, opens=bint)
    cpdef int add(self, Call call, StoredStream stream) except -1


@cython.locals(
    arguments=Arguments, request=AddRequest, index=Py_ssize_t, fields=Py_ssize_t, stream=StoredStream
)
cpdef xadd(Call call)
