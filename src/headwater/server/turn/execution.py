"""Executes one request of one session: checks, then the command.

    find its row ─▶ check that it may run ─▶ queue it for EXEC, or run it

Rule 1. The checks have Redis's order (server.c, processCommand): the client gets the error of the first
        check that fails.
Rule 2. A command that cannot be queued makes its transaction fail, except MULTI and WATCH, which run
        inside a transaction only to return an error.
Rule 3. EXEC, scripts and unblocked clients call `run_queued`, `run` and `run_again`. Of these checks, only
        the check of the user's permissions is repeated.
Rule 4. A command that needs blocks on disk waits for them outside the turn (cold_reads.py), unless it is part
        of EXEC or a script, was blocked, or is an embedded client's: then it reads them itself.
"""

from __future__ import annotations

from typing import Any

from headwater.commands.call import Call, Wait
from headwater.commands.dispatch import KnownCommand, find_command, find_like
from headwater.commands.jobs import Job
from headwater.engine.bodies.sealed_block import ColdBlocks
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import CommandError, JournalDamaged, NoRoom
from headwater.resp.arguments import Arguments
from headwater.server.commands import SERVER_FUNCTIONS
from headwater.server.commands.transactions import aborted
from headwater.server.services.faults import NOTHING
from headwater.server.services.memory_use import OOM
from headwater.server.services.runner import Runner
from headwater.server.services.scripting.cache import SCRIPTS
from headwater.server.services.services import Services
from headwater.server.services.state import LOADING
from headwater.server.services.storage.cold_reads import ColdRead
from headwater.server.services.storage.damage import unreadable
from headwater.server.session.session import Session
from headwater.server.session.subscriptions import check_context
from headwater.server.session.transaction import TransactionQueue

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use clock.pxd
    from time import monotonic_ns as passed_ns

NO_AUTH = "NOAUTH Authentication required."

_NEVER_QUEUED = frozenset({b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT", b"RESET"})


class Execution(Runner):
    """Executes the requests of a node's sessions."""

    def __init__(self, services: Services) -> None:
        self.keyspace: Keyspace = services.keyspace
        self._services = services
        self._state = services.state
        self._times = services.times
        self._observer = services.observer
        self._pause = services.blocked.pause
        self._pubsub = services.pubsub
        self.patient = False
        """True if the current command, which was blocked or could not get its blocks, reads from disk itself."""
        self._memory = services.memory

    def execute(self, session: Session, arguments: Arguments) -> Wait | Job | ColdRead | None:
        """Find the command and run it. An error becomes the reply."""
        mark = len(session.output.outbox)
        chosen: KnownCommand | None = None
        try:
            known = session.last
            known = find_command(arguments) if known is None else find_like(known, arguments)
            session.last = known
            self._check_gates(session, known, arguments)
            if self._pause.active and self._pause.holds(session, known, arguments):
                return self._pause.postpone(session, arguments)
            if session.transaction.queue is not None and known.name not in _NEVER_QUEUED:
                session.transaction.queue.add(known, arguments)
                session.output.reply.simple(b"QUEUED")
                return None
            chosen = known
            return self._run(session, known, arguments, self._times.began_ns)
        except ColdBlocks as cold:
            session.output.discard(mark)
            return ColdRead(arguments.copy(), cold.wanted, cold.ahead)
        except Exception as raised:
            session.output.discard(mark)
            if chosen is not None:
                text = str(self._failure(session, chosen, arguments, self._times.began_ns, raised))
            else:
                session.transaction.failed |= session.transaction.queue is not None
                text = str(self._rejected(session, arguments, self._refusal(session, None, raised)))
            session.output.reply.error(text)
            return None

    def _refusal(
        self, session: Session, known: KnownCommand | None, raised: Exception
    ) -> CommandError:
        """Return the error reply for an exception of a command. Raises it if a change may be incomplete
        (services/faults.py)."""
        if isinstance(raised, CommandError):
            return raised
        title = "the request" if known is None else known.title
        self.keyspace.events.clear()  # The change that the events report has not happened.
        if known is not None and known.name == b"EXEC":
            outcome = "what its commands wrote remains"
        elif known is not None and known.name in SCRIPTS:
            outcome = "what the script wrote remains"
        elif self._observer.monitors.source is not None:  # in a script
            outcome = f"{NOTHING}; what the script wrote remains"
        else:
            outcome = NOTHING
        changed = session.call.admitted
        return self._services.faults.refuse(raised, title, changed=changed, outcome=outcome)

    def _failure(
        self,
        session: Session,
        known: KnownCommand,
        arguments: Arguments,
        began: int,
        raised: Exception,
    ) -> CommandError:
        """Return the error reply for an exception of a command that ran, and record it. Callers must not assign
        the error to a variable: its traceback has their frames, and both would wait for the cyclic collector."""
        error = self._refusal(session, known, raised)
        self._failed(session, known, arguments, began, error)
        return error

    def _rejected(
        self, session: Session, arguments: Arguments, error: CommandError
    ) -> CommandError:
        """Return the error of a rejected command. A rejected EXEC ends its transaction."""
        self._observer.rejected(arguments, error)
        if not arguments.count or arguments.token(0) != b"EXEC":
            return error
        self._services.leave_transaction(session)
        return aborted(error)

    def _check_gates(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Check that a command may run. Raises `CommandError`."""
        if not session.scanner.authenticated and not known.before_login:
            raise CommandError(NO_AUTH)
        if session.transaction.queue is not None and known.never_queued:
            raise CommandError("ERR Command not allowed inside a transaction")
        if not session.user.unrestricted:
            self._services.authorization.check(session, known.command, arguments)
        if self._memory.limit:
            self._check_memory(session, known, arguments)
        if session.subscriptions.active:
            check_context(session.resp, known.title)
        if self._state.restricted:
            self.check_role(session, known)
        if session.subscriptions.monitoring and known.on_keys:
            raise CommandError("ERR Replica can't interact with the keyspace")

    def check_role(self, session: Session, known: KnownCommand) -> None:
        """Refuse what may not run while the node is loading, is a replica, or lacks replicas. Raises `CommandError`."""
        if self._state.loading is not None:
            if not known.while_loading:
                raise CommandError(LOADING)
            return
        queue = session.transaction.queue
        each = queue.commands if known.name == b"EXEC" and queue is not None else (known,)
        writes = any(one.command.writes for one in each)
        stale = all("stale" in one.command.flags for one in each)
        shows = any(one.on_keys or one.name in SCRIPTS for one in each)
        refusal = self._services.replication.refusal(writes=writes, stale=stale, shows=shows)
        if refusal is not None:
            raise CommandError(refusal)
        if shows:  # not PUBLISH, nor what Sentinel sends to promote this server
            session.output.shown_turn = self._services.records.turn

    def _check_memory(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Refuse a command that may take more memory than maxmemory allows. Raises `CommandError` (OOM)."""
        if known.enlarges:
            enlarges = known.takes_memory(arguments)
            if not enlarges:
                return
        elif known.name == b"EXEC":
            queue = session.transaction.queue
            enlarges = queue is not None and queue.enlarges
        elif known.name in SCRIPTS:
            flags = self._services.scripts.declared(known, arguments)
            enlarges = flags is not None and not flags & {b"allow-oom", b"no-writes"}
        else:
            return
        if self._memory.exceeded() and not self._memory.relieve() and enlarges:
            raise CommandError(OOM)

    def rejected(self, arguments: Arguments, error: CommandError) -> None:
        """Record that a command of a script was rejected before it ran."""
        self._observer.rejected(arguments, error)

    def check(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Check the permissions of the session's user. Raises `CommandError` (NOPERM)."""
        if not session.user.unrestricted:
            self._services.authorization.check(session, known.command, arguments)

    def run_again(self, session: Session, arguments: Arguments) -> Wait | None:
        """Run the command of a blocked client again, if its user still has the permission. Raises
        `CommandError`."""
        known, reply = find_command(arguments), session.output.reply
        try:
            self.check(session, known, arguments)
        except CommandError as refused:
            self._observer.rejected(arguments, refused)
            raise
        piece_bytes, reply.piece_bytes = reply.piece_bytes, 0
        self.patient = True
        began = passed_ns()
        try:
            found: Any = self._run(session, known, arguments, began)
        except NoRoom:  # no reply: the client keeps waiting
            raise
        except Exception as raised:
            raise self._failure(session, known, arguments, began, raised) from None
        finally:
            self.patient = False
            reply.piece_bytes = piece_bytes
        again: Wait | None = found  # a command that waits for a key is not a job
        return again

    def run_queued(self, session: Session, queue: TransactionQueue) -> None:
        """Run the commands of a transaction. An error is the reply of its own command only."""
        reply = session.output.reply
        piece_bytes, reply.piece_bytes = reply.piece_bytes, 0  # the replies are one reply
        try:
            self._run_each(session, queue)
        finally:
            reply.piece_bytes = piece_bytes

    def _run_each(self, session: Session, queue: TransactionQueue) -> None:
        arguments, outbox, call = Arguments(), session.output.outbox, session.call
        changed = False
        queue.begin()
        for known in queue.commands:
            queue.next(arguments)
            mark = len(outbox)
            began = self._times.ended_ns  # the end of the previous command saves a reading
            if not began and self._observer.timing:
                began = passed_ns()
            try:
                if not session.user.unrestricted:
                    self._check_queued(session, known, arguments)
                if self.run(session, known, arguments, began) is not None:
                    session.output.reply.nil_array()
            except CommandError as error:
                del outbox[mark:]
                session.output.reply.error(str(error))
            changed |= call.admitted
            call.admitted = changed  # for an error of EXEC itself

    def _check_queued(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Check the permissions for a queued command, and count a refusal. Raises `CommandError`."""
        try:
            self._services.authorization.check_queued(session, known.command, arguments)
        except CommandError as error:
            self._observer.count_error(error)
            raise

    def run(
        self, session: Session, known: KnownCommand, arguments: Arguments, began: int
    ) -> Wait | Job | None:
        """Run a command that was found, and record statistics. The command began at ``began`` (monotonic ns).
        Raises `CommandError`."""
        try:
            return self._run(session, known, arguments, began)
        except Exception as raised:
            raise self._failure(session, known, arguments, began, raised) from None

    def _failed(
        self,
        session: Session,
        known: KnownCommand,
        arguments: Arguments,
        began: int,
        error: CommandError,
    ) -> None:
        """Record the failure of a command."""
        took = 0
        self._times.ended_ns = 0
        if self._observer.timing:
            self._times.ended_ns = passed_ns()
            took = self._times.ended_ns - began
        if self.keyspace.events:  # such as a key miss
            self._pubsub.publish_events(session)
        self._observer.failed(session, known.name, arguments, took, error)

    def _run(
        self, session: Session, known: KnownCommand, arguments: Arguments, began: int
    ) -> Wait | Job | None:
        """Run a command as `run` does, without recording a failure."""
        call = session.call
        call.admitted = False
        call.arguments = arguments
        observer = self._observer
        timing = observer.timing
        result: Wait | Job | None
        if known.function is None:
            result = SERVER_FUNCTIONS[known.name](call, session, self._services)
        elif self.keyspace.sealing.stored_count:
            result = self._run_stored(call, known)
        else:
            result = known.function(call)
        if self.keyspace.events:
            self._pubsub.publish_events(session)
        took = 0
        if timing:
            self._times.ended_ns = passed_ns()
            took = self._times.ended_ns - began
        if result is not None and call.may_block:
            observer.blocks(session, known.name, arguments, took)
            return result
        statistics = observer.statistics_of(known)
        statistics.calls += 1
        session.commands += 1
        if timing:
            statistics.nanoseconds += took
            if took > observer.record_ns:
                observer.record(session, known.name, arguments, took)
        return result

    def _run_stored(self, call: Call, known: KnownCommand) -> Wait | Job | None:
        """Run the function of a command on a store that has blocks on disk. Raises `CommandError`, and
        `ColdBlocks` if it must run again when blocks have been read, in which case nothing has changed."""
        assert known.function is not None
        keyspace = self.keyspace
        bodies = keyspace.sealing.bodies
        bodies.may_wait = self.patient or not (call.may_block and call.offloads)
        hits, misses, events = keyspace.hits, keyspace.misses, len(keyspace.events)
        written = len(keyspace.facts.data)
        try:
            return known.function(call)
        except ColdBlocks:
            assert len(keyspace.facts.data) == written, "a command read a block after a mutator"
            keyspace.hits, keyspace.misses = hits, misses
            del keyspace.events[events:]
            raise
        except JournalDamaged as error:
            assert len(keyspace.facts.data) == written, "a command read a block after a mutator"
            raise unreadable(error, known.command, call.arguments) from error
        finally:
            bodies.may_wait = True
            if bodies.holding:
                bodies.release()
