cimport cython
from headwater.native.memory_c cimport is_part, word_at
from headwater.resp.arguments cimport Arguments

cdef dict _known, _spelled
cdef Py_ssize_t _MOST_SPELLINGS


@cython.final
cdef class KnownCommand:
    cdef public bytes name
    cdef public Py_ssize_t number
    cdef public bytes typed
    cdef public object command
    cdef public str title
    cdef public object function
    cdef public Py_ssize_t arity
    cdef public bint before_login
    cdef public bint while_loading
    cdef public bint never_queued
    cdef public bint writes
    cdef public bint enlarges
    cdef public bint on_keys
    cdef public bint alone
    cdef public dict subcommands

    @cython.locals(index=Py_ssize_t, takes=bint)
    cpdef bint takes_memory(self, Arguments arguments) except -1
    cpdef KnownCommand subcommand(self, Arguments arguments)


cpdef KnownCommand find_command(Arguments arguments)

cpdef KnownCommand find_like(KnownCommand last, Arguments arguments)

@cython.locals(typed=bytes, found=KnownCommand)
cdef KnownCommand _named(Arguments arguments)

@cython.locals(count=Py_ssize_t)
cdef KnownCommand _checked(KnownCommand found, Arguments arguments)
