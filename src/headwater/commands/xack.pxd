cimport cython
from cpython cimport array
from headwater.commands.call cimport Call
from headwater.commands.ids cimport IDBlock, distinct, id_words
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.streams.stream cimport StoredStream
from headwater.native.memory_c cimport push_id, push_word, u64, word_at
from headwater.resp.arguments cimport Arguments


@cython.locals(arguments=Arguments, stream=StoredStream, group=ConsumerGroup, ids=array.array, found=Py_ssize_t)
cpdef xack(Call call)

@cython.locals(
    arguments=Arguments, block=IDBlock, index=Py_ssize_t, more=bint, force=bint,
    retry_count="long long", records=array.array, count=Py_ssize_t,
)
cpdef xnack(Call call)

@cython.locals(
    records=array.array, counts=dict, base=Py_ssize_t, ms=u64, seq=u64, at=Py_ssize_t, count=u64
)
cdef array.array _releases(
    StoredStream stream, ConsumerGroup group, array.array ids, bytes mode, long long retry_count,
    bint force,
)
