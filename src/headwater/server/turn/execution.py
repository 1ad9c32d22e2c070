"""One request of one session: what stands before a command, and the command.

    find its row ─▶ may it run, here and now? ─▶ queue it for EXEC, or invoke it

Rule 1. What stands before a command stands in Redis's order (server.c, processCommand): the error
        that a client sees is the one of the first that fails.
Rule 2. What cannot be queued spoils its transaction; MULTI and WATCH, which run within one only to
        be refused, do not.
Rule 3. EXEC, scripts and woken waiters come in by `invoke`, behind the gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.commands.call import Missing, Wait
from headwater.commands.dispatch import KnownCommand, find_command, find_like
from headwater.commands.jobs import Job
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.commands import SERVER_FUNCTIONS
from headwater.server.commands.transactions import aborted
from headwater.server.services.acl import permissions
from headwater.server.services.pubsub import check_context
from headwater.server.session.transaction_queue import TransactionQueue

if TYPE_CHECKING:
    from headwater import _cython as cython
    from headwater.server.session.session import Session
    from headwater.server.turn.node import Node
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # clock.pxd asks the system
    from time import monotonic_ns as passed_ns

NO_AUTH = "NOAUTH Authentication required."

_NEVER_QUEUED = frozenset({b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT", b"RESET"})


def execute(node: Node, session: Session, arguments: Arguments) -> Wait | Job | None:
    """Choose the function and call it; an error becomes the reply."""
    mark = len(session.outbox)
    chosen: KnownCommand | None = None
    try:
        known = session.last
        known = find_command(arguments) if known is None else find_like(known, arguments)
        session.last = known
        _check_gates(session, known, arguments)
        if node.pause.active and node.pause.holds(session, known.row):
            return node.pause.postpone(session, arguments)
        if session.queued is not None and known.name not in _NEVER_QUEUED:
            session.queued.add(known, arguments)
            session.reply.simple(b"QUEUED")
            return None
        chosen = known
        return _run(node, session, known, arguments, node.times.began_ns)
    except CommandError as error:
        del session.outbox[mark:]
        if chosen is not None:
            _failed(node, session, chosen, arguments, node.times.began_ns, error)
        else:
            session.queue_failed |= session.queued is not None
            error = _rejected(node, session, arguments, error)
        session.reply.error(str(error))
        return None


def _rejected(
    node: Node, session: Session, arguments: Arguments, error: CommandError
) -> CommandError:
    """The error of a command that was refused before it ran; EXEC loses its transaction with it."""
    node.observer.rejected(arguments, error)
    if not arguments.count or arguments.token(0) != b"EXEC":
        return error
    session.leave_transaction()
    return aborted(error)


def _check_gates(session: Session, known: KnownCommand, arguments: Arguments) -> None:
    """Refuse what may not run. Raises `CommandError`."""
    if not session.scanner.authenticated and not known.before_login:
        raise CommandError(NO_AUTH)
    if session.queued is not None and known.never_queued:
        raise CommandError("ERR Command not allowed inside a transaction")
    if not session.user.unrestricted:
        permissions.check(session, known.row, arguments)
    if session.monitoring and known.on_keys:
        raise CommandError("ERR Replica can't interact with the keyspace")
    if session.subscribed:
        check_context(session, known.title)


def invoke_again(node: Node, session: Session, arguments: Arguments) -> Wait | None:
    """Run the command of a client that was blocked, if its user may run it still; raises
    `CommandError`."""
    known = find_command(arguments)
    if not session.user.unrestricted:
        permissions.check(session, known.row, arguments)
    found: Any = run(node, session, known, arguments, passed_ns())
    again: Wait | None = found  # who waits for a key has no job
    return again


def invoke(node: Node, session: Session, arguments: Arguments) -> Wait | Job | None:
    """Run a command that was looked at before; raises `CommandError`."""
    return run(node, session, find_command(arguments), arguments, passed_ns())


def run_queued(node: Node, session: Session, queue: TransactionQueue) -> None:
    """Run the commands of a transaction, each with its reply or its error in its place."""
    arguments, outbox = Arguments(), session.outbox
    queue.begin()
    for known in queue.commands:
        queue.next(arguments)
        mark = len(outbox)
        began = node.times.ended_ns  # one reading of the clock for an end and a beginning
        if not began and node.observer.timing:
            began = passed_ns()
        try:
            if not session.user.unrestricted:
                permissions.check_again(session, known.row, arguments)
            if run(node, session, known, arguments, began) is not None:
                session.reply.nil_array()
        except CommandError as error:
            del outbox[mark:]
            session.reply.error(str(error))


def run(
    node: Node, session: Session, known: KnownCommand, arguments: Arguments, began: int
) -> Wait | Job | None:
    """Call the function of a command that was found, and count it; raises `CommandError`. It has
    begun at ``began`` (monotonic ns)."""
    try:
        return _run(node, session, known, arguments, began)
    except CommandError as error:
        _failed(node, session, known, arguments, began, error)
        raise


def _failed(
    node: Node,
    session: Session,
    known: KnownCommand,
    arguments: Arguments,
    began: int,
    error: CommandError,
) -> None:
    """A command that was found has ended with an error."""
    took = 0
    node.times.ended_ns = 0
    if node.observer.timing:
        node.times.ended_ns = passed_ns()
        took = node.times.ended_ns - began
    if node.keyspace.events:  # it may have missed a key
        node.pubsub.publish_events(session)
    node.observer.failed(session, known.name, arguments, took, error)


def _run(
    node: Node, session: Session, known: KnownCommand, arguments: Arguments, began: int
) -> Wait | Job | None:
    """As `run`, without counting a failure."""
    call = session.call
    call.arguments = arguments
    observer = node.observer
    timing = observer.timing
    result: Wait | Missing | Job | None
    if known.function is None:
        result = SERVER_FUNCTIONS[known.name](call, session, node)
    else:
        result = known.function(call)
    if node.keyspace.events:
        node.pubsub.publish_events(session)
    took = 0
    if timing:
        node.times.ended_ns = passed_ns()
        took = node.times.ended_ns - began
    if result is not None:
        assert not isinstance(result, Missing), "no block is spilled yet (docs/adr/0003)"
        if call.may_block:
            observer.blocks(session, known.name, arguments, took)
            return result
    figures = observer.figures_of(known)
    figures.calls += 1
    if timing:
        figures.nanoseconds += took
        if took > observer.look_ns:
            observer.look(session, known.name, arguments, took)
    return result
