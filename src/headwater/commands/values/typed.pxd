cimport cython
from headwater.commands.call cimport Call

cdef Py_ssize_t HEADROOM, TEXT_BYTES


cpdef reading(Call call, bytes key, kind)

cpdef writing(Call call, bytes key, kind)

cdef _checked(value, kind)

@cython.locals(size=Py_ssize_t, text=bytes)
cpdef prepare(Call call, bytes key, list texts)

cpdef prepare_text(Call call, bytes key, bytes text)

cdef _prepare(Call call, bytes key, Py_ssize_t size)

cpdef changed(Call call, bytes key, unsigned int kind, bytes event, Py_ssize_t changes)
