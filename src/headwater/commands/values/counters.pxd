cimport cython
from headwater.commands.call cimport Call
from headwater.commands.values.strings cimport change_string
from headwater.commands.values.typed cimport writing


cpdef incr(Call call)

cpdef decr(Call call)

@cython.locals(key=bytes, current=bytes)
cdef _change(Call call, difference)
