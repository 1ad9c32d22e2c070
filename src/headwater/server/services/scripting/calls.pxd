cimport cython
from headwater.common.clock cimport passed_ns
from headwater.commands.call cimport Call
from headwater.commands.dispatch cimport KnownCommand, find_command
from headwater.resp.arguments cimport Arguments
from headwater.resp.replies cimport ReplyWriter
from headwater.server.services.runner cimport Runner
from headwater.server.services.scripting.interpreter cimport Interpreter
from headwater.server.services.scripting.values cimport reply_words
from headwater.server.session.session cimport Session

cdef int _VALUE_BYTES, _SMALL_BYTES


@cython.final
cdef class ScriptRun:
    cdef Runner _runner
    cdef object _authorization
    cdef double _seconds
    cdef Session _session
    cdef object _script
    cdef bint _read_only
    cdef bint _is_bounded
    cdef int _resp
    cdef Interpreter _interpreter
    cdef Arguments _arguments

    @cython.locals(call=Call, arguments=Arguments, may_block=bint)
    cpdef answer(self, tuple words, Py_ssize_t key_count)
    cpdef set_resp(self, int version)
    @cython.locals(
        arguments=Arguments, call=Call, answer=bytearray, reply=ReplyWriter, inner=ReplyWriter, known=KnownCommand,
        began="long long"
    )
    cpdef call(self, tuple values)
    cdef _check(self, KnownCommand known, Arguments arguments)


cdef KnownCommand _found(Arguments arguments)

@cython.locals(words=list)
cdef list _words(tuple values)
