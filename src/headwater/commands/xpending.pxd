cimport cython
from cpython cimport array
from headwater.commands.times cimport WallOffset
from headwater.commands.call cimport Call
from headwater.engine.groups.consumer cimport GroupConsumer
from headwater.engine.groups.group cimport ConsumerGroup
from headwater.engine.groups.pending cimport PendingList
from headwater.engine.groups.pending_block cimport PendingBlock
from headwater.native.memory_c cimport push_word, u64, word_at
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter

cdef u64 NOBODY


@cython.locals(
    arguments=Arguments, min_idle="long long", index=Py_ssize_t, count=Py_ssize_t,
    group=ConsumerGroup, rows=list, at=Py_ssize_t,
)
cpdef xpending(Call call)

@cython.locals(reply=ReplyWriter, pel=PendingList, entry_id=tuple, consumer=GroupConsumer)
cdef _summary(Call call, ConsumerGroup group)

@cython.locals(pel=PendingList, found=list, consumer=GroupConsumer, at=Py_ssize_t)
cdef list _rows(
    ConsumerGroup group, tuple start, tuple end, Py_ssize_t count, bytes name,
    object delivered_by,
)

@cython.locals(reply=ReplyWriter, pel=PendingList, owner=GroupConsumer, idle="long long")
cdef _write_row(Call call, ConsumerGroup group, Py_ssize_t at)

@cython.locals(pel=PendingList, total=Py_ssize_t, owner=u64, name=bytes, at=Py_ssize_t)
cpdef write_group_rows(
    ReplyWriter reply, ConsumerGroup group, Py_ssize_t count, WallOffset wall
)

@cython.locals(pel=PendingList, total=Py_ssize_t, number=Py_ssize_t, at=Py_ssize_t)
cpdef write_consumer_rows(
    ReplyWriter reply, ConsumerGroup group, array.array positions, WallOffset wall
)

@cython.locals(
    pel=PendingList, found=dict, waiting=Py_ssize_t, consumer=GroupConsumer, at=Py_ssize_t, owner=u64,
    block=PendingBlock, same=Py_ssize_t, positions=array.array, most=Py_ssize_t, room=Py_ssize_t,
    number=Py_ssize_t,
)
cpdef dict positions_by_owner(ConsumerGroup group, Py_ssize_t count)
