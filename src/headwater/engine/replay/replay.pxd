cimport cython
from cpython cimport array
from headwater.engine.facts.fact_reader cimport FactReader
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.keyspace.keyspace cimport Keyspace
from headwater.engine.replay.restoring cimport Restoring
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport u64, word_at

cdef int _LEAST_IMAGE_KIND
cdef Py_ssize_t _KEPT_BYTES


@cython.final
cdef class Replay:
    cdef public Keyspace keyspace
    cdef public Py_ssize_t done
    cdef FactReader _reader
    cdef Restoring _restoring
    cdef bytearray _wire
    cdef long long _sid
    cdef long long _gid
    cdef StoredStream _stream
    cdef ConsumerGroup _group

    cpdef apply(self, facts, long long now_ms)
    @cython.locals(number=Py_ssize_t)
    cpdef apply_batch(
        self, data, array.array starts, array.array ends, array.array times, Py_ssize_t first
    )
    cpdef begin(self, facts, long long now_ms)
    @cython.locals(reader=FactReader, kind=int)
    cpdef int step(self) except -2
    cdef _apply_group(self)
    cdef _other(self, int kind)
    cdef int _forget(self) except -1
    @cython.locals(stream=StoredStream)
    cdef StoredStream _stream_of(self, long long sid)
    @cython.locals(group=ConsumerGroup)
    cdef ConsumerGroup _group_of(self, long long gid)
    @cython.locals(
        reader=FactReader, wire=bytearray, stream=StoredStream, ms=u64, seq=u64, opens=int,
        pairs=Py_ssize_t, length=Py_ssize_t,
    )
    cdef _appended(self)
    @cython.locals(reader=FactReader, stream=StoredStream, ms=u64, seq=u64)
    cdef _trimmed(self)
    @cython.locals(reader=FactReader, stream=StoredStream, flags=int, count=Py_ssize_t, ids=list)
    cdef _deleted(self)
    @cython.locals(
        reader=FactReader, group=ConsumerGroup, consumer=GroupConsumer, time=u64, first=tuple,
        last=tuple, count=Py_ssize_t, read="long long", noack=int,
    )
    cdef _delivered(self)
    @cython.locals(reader=FactReader, group=ConsumerGroup, count=Py_ssize_t)
    cdef _acknowledged(self)
    @cython.locals(
        reader=FactReader, group=ConsumerGroup, consumer=GroupConsumer, seen_time="long long",
        active_time="long long", count=Py_ssize_t,
    )
    cdef _owned(self)
    @cython.locals(reader=FactReader, group=ConsumerGroup, count=Py_ssize_t)
    cdef _released(self)
