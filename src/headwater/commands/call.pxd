cimport cython
from headwater.commands.times cimport WallOffset
from headwater.engine.keyspace.database cimport Database
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport cut, is_part, word_at
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter


cdef Py_ssize_t _KEPT_KEY_BYTES


@cython.final
cdef class Wait:
    cdef public list keys
    cdef public long long timeout_ms
    cdef public Arguments arguments
    cdef public object recheck_at_ms
    cdef public bint for_streams
    cdef public bint for_lists
    cdef public bytes at_timeout
    cdef public object alike
    cdef public ConsumerGroup group

    cpdef bint wakes_on(self, value) except -1
    @cython.locals(group=ConsumerGroup)
    cpdef bint finds_nothing(self, value) except -1


@cython.final
cdef class StreamSettings:
    cdef public Py_ssize_t node_max_bytes
    cdef public Py_ssize_t node_max_entries
    cdef public Py_ssize_t max_entry_bytes
    cdef public object autoclaim_scan_factor
    cdef public object dump_format
    cdef public object idmp_duration_s
    cdef public object idmp_maxsize


@cython.final
cdef class Call:
    cdef public Keyspace keyspace
    cdef public Database db
    cdef public Arguments arguments
    cdef public long long now_ms
    cdef public WallOffset wall
    cdef public ReplyWriter reply
    cdef public bint may_block
    cdef public bint offloads
    cdef public object admission
    cdef public StreamSettings settings
    cdef public object draw
    cdef public object spare
    cdef public bint admitted
    cdef public bint touches
    cdef bytes _key

    cpdef long long wall_ms(self) noexcept

    @cython.locals(arguments=Arguments, key=bytes, start=Py_ssize_t, end=Py_ssize_t)
    cpdef bytes key(self, Py_ssize_t index)

    cpdef admit(self, Py_ssize_t size)
    cpdef modified(self, bytes key, Py_ssize_t changes=*)
    cpdef notify(self, unsigned int kind, bytes event, bytes key, Database db=*)
    cpdef StoredStream stream(self, bytes key)
    cpdef StoredStream read_stream(self, bytes key)
    @cython.locals(found=StoredStream)
    cdef StoredStream _checked(self, value)
    cpdef lookup(self, bytes key)
    cpdef read(self, bytes key)
    cpdef StoredStream create_stream(self, bytes key)
