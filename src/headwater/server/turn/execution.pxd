cimport cython
from headwater.clock cimport passed_ns
from headwater.commands.call cimport Call
from headwater.commands.dispatch cimport KnownCommand, find_command, find_like
from headwater.resp.arguments cimport Arguments
from headwater.server.turn.node cimport Node
from headwater.server.services.observability.observer cimport CommandFigures, Observer
from headwater.server.session.session cimport Session
from headwater.server.session.transaction_queue cimport TransactionQueue
from headwater.server.services.turn_clock cimport TurnClock


@cython.locals(mark=Py_ssize_t, chosen=KnownCommand, known=KnownCommand)
cpdef execute(Node node, Session session, Arguments arguments)

cdef _check_gates(Session session, KnownCommand known, Arguments arguments)

@cython.locals(known=KnownCommand)
cpdef invoke_again(Node node, Session session, Arguments arguments)

cpdef invoke(Node node, Session session, Arguments arguments)

@cython.locals(
    known=KnownCommand, arguments=Arguments, outbox=bytearray, mark=Py_ssize_t, began="long long"
)
cpdef run_queued(Node node, Session session, TransactionQueue queue)

cpdef run(
    Node node, Session session, KnownCommand known, Arguments arguments, long long began
)

@cython.locals(took="long long")
cdef _failed(
    Node node, Session session, KnownCommand known, Arguments arguments, long long began, error
)

@cython.locals(call=Call, observer=Observer, timing=bint, took="long long", figures=CommandFigures)
cdef _run(
    Node node, Session session, KnownCommand known, Arguments arguments, long long began
)
