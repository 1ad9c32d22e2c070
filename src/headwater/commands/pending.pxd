cimport cython
from headwater.commands.call cimport Call
from headwater.engine.group cimport Consumer, ConsumerGroup
from headwater.engine.pending cimport PendingList
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter


@cython.locals(
    arguments=Arguments, min_idle="long long", index=Py_ssize_t, count=Py_ssize_t,
    group=ConsumerGroup, rows=list, at=Py_ssize_t,
)
cpdef xpending(Call call)

@cython.locals(reply=ReplyWriter, pel=PendingList, entry_id=tuple, consumer=Consumer)
cdef _summary(Call call, ConsumerGroup group)

@cython.locals(pel=PendingList, found=list, consumer=Consumer, at=Py_ssize_t)
cdef list _rows(
    ConsumerGroup group, tuple start, tuple end, Py_ssize_t count, bytes name,
    object delivered_by,
)

@cython.locals(reply=ReplyWriter, pel=PendingList, owner=Consumer, idle="long long")
cdef _write_row(Call call, ConsumerGroup group, Py_ssize_t at)
