cimport cython
from cpython cimport array
from headwater.commands.wall_time cimport WallOffset
from headwater.engine.group cimport Consumer, ConsumerGroup
from headwater.engine.pending cimport PendingList
from headwater.engine.pending_block cimport PendingBlock
from headwater.memory_c cimport push_word, u64, word_at
from headwater.resp.replies cimport ReplyWriter

cdef u64 NOBODY


@cython.locals(pel=PendingList, total=Py_ssize_t, owner=u64, name=bytes, at=Py_ssize_t)
cpdef write_group_rows(
    ReplyWriter reply, ConsumerGroup group, Py_ssize_t count, WallOffset wall
)

@cython.locals(pel=PendingList, total=Py_ssize_t, number=Py_ssize_t, at=Py_ssize_t)
cpdef write_consumer_rows(
    ReplyWriter reply, ConsumerGroup group, array.array positions, WallOffset wall
)

@cython.locals(
    pel=PendingList, found=dict, waiting=Py_ssize_t, consumer=Consumer, at=Py_ssize_t, owner=u64,
    block=PendingBlock, same=Py_ssize_t, positions=array.array, most=Py_ssize_t, room=Py_ssize_t,
    number=Py_ssize_t,
)
cpdef dict positions_by_owner(ConsumerGroup group, Py_ssize_t count)
