from headwater.commands.dispatch cimport KnownCommand
from headwater.resp.arguments cimport Arguments
from headwater.server.session.session cimport Session
from headwater.server.session.transaction cimport TransactionQueue


cdef class Runner:
    cpdef run(
        self, Session session, KnownCommand known, Arguments arguments, long long began
    )
    cpdef run_queued(self, Session session, TransactionQueue queue)
    cpdef run_again(self, Session session, Arguments arguments)
