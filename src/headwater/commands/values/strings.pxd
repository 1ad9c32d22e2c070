cimport cython
from headwater.commands.call cimport Call
from headwater.commands.values.typed cimport changed, prepare_text, reading, writing
from headwater.native.memory_c cimport decimal_text
from headwater.resp.arguments cimport Arguments, parse_integer
from headwater.resp.replies cimport ReplyWriter

cdef long long _LEAST, _MOST


@cython.locals(arguments=Arguments, reply=ReplyWriter)
cpdef set_string(Call call)

@cython.locals(key=bytes, value=bytes)
cdef _set_plainly(Call call)

cdef _put(Call call, bytes key, bytes value, current, at_ms, kept_ms)

cpdef get(Call call)

cpdef change_string(Call call, bytes key, bytes value, bytes event)

cpdef incr(Call call)

cpdef decr(Call call)

@cython.locals(key=bytes, current=bytes, number="long long")
cdef _add(Call call, long long difference)
