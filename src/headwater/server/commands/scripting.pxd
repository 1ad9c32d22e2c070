cimport cython
from headwater.commands.call cimport Call
from headwater.resp.arguments cimport Arguments
from headwater.server.scripting.calls cimport Run


cpdef eval_(Call call, session, node)
cpdef eval_ro(Call call, session, node)
cpdef evalsha(Call call, session, node)
cpdef evalsha_ro(Call call, session, node)

@cython.locals(arguments=Arguments, count=Py_ssize_t)
cdef Py_ssize_t _key_count(Call call) except -1

@cython.locals(arguments=Arguments, sha=bytes)
cdef _known(Call call, node)

@cython.locals(arguments=Arguments, index=Py_ssize_t, words=list)
cdef _run(Call call, session, node, script, Py_ssize_t key_count, bint read_only)
