"""MULTI, EXEC, DISCARD, WATCH, UNWATCH.

Rule 1. EXEC is one record group: the node opens it around the whole command (ARCHITECTURE.md, rule 5).
Rule 2. A command that fails inside EXEC has an error as its reply; the others take effect, as in Redis.
Rule 3. EXEC with a write is refused as a whole if the journal has no room for the queued commands, as in
        Redis: a program that writes data and a position in one MULTI has both or neither. Only a command
        that writes more bytes than it received, such as a trim with ACKED, can be refused by itself.
Rule 4. Nothing blocks inside EXEC: a read that would wait replies immediately.
Rule 5. Permissions are checked when a command is queued and again when it runs.
"""

from __future__ import annotations

from typing import Final

from headwater.commands.call import Call, Wait
from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.engine.facts.facts import HEADROOM
from headwater.errors import CommandError, NoRoom
from headwater.server.services.services import Services
from headwater.server.session.session import Session
from headwater.server.session.transaction import TransactionQueue

_FACTS: Final = 6
"""Maximum number of facts of one command, unless the number depends on the data."""

_MOST_ADMITTED: Final = MAX_RECORD_GROUP_BYTES // 2
"""Maximum size that is admitted in advance, in bytes. The size is an estimate and may be too high, so a larger one
must not refuse the transaction."""


def multi(call: Call, session: Session, services: Services) -> None:
    """MULTI: queue the commands that follow."""
    if session.transaction.queue is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction.queue = TransactionQueue(services.clients.memory)
    call.reply.ok()


def discard(call: Call, session: Session, services: Services) -> None:
    """DISCARD: drop the queue and end every WATCH."""
    if session.transaction.queue is None:
        raise CommandError("ERR DISCARD without MULTI")
    services.leave_transaction(session)
    call.reply.ok()


def exec_(call: Call, session: Session, services: Services) -> Wait | None:
    """EXEC: run the queue as one step. The reply is nil if a watched key changed, an error if a command
    could not be queued."""
    queued = session.transaction.queue
    if queued is None:
        raise CommandError("ERR EXEC without MULTI")
    failed, watch, watches = session.transaction.failed, session.transaction.watch, services.watches
    broken = watches.broken(watch) or watches.expired(watch, call.now_ms)
    services.leave_transaction(session)
    if failed:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if broken:
        call.reply.nil_array()
        return None
    if queued.writes:
        try:
            # The facts contain the bytes of the request, a key up to three times.
            size = _FACTS * HEADROOM * len(queued) + 3 * queued.size
            call.admit(min(_MOST_ADMITTED, size))
        except NoRoom as error:
            raise aborted(error) from None
    start = len(session.output.outbox)
    call.reply.array(len(queued))
    own, may_block = call.arguments, call.may_block
    call.may_block = False
    try:
        services.runner.run_queued(session, queued)
    finally:
        call.may_block, call.arguments = may_block, own
    return services.authorization.logins.hold_transaction(session, start)


def aborted(error: CommandError) -> CommandError:
    """Return the error of an EXEC that is refused as a whole (Redis, multi.c, execCommandAbort)."""
    reason = str(error).removeprefix("ERR ")
    return CommandError(f"EXECABORT Transaction discarded because of: {reason}")


def watch(call: Call, session: Session, services: Services) -> None:
    """WATCH key [key …]: the next EXEC does nothing if one of the keys is modified before it."""
    if session.transaction.queue is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for index in range(1, call.arguments.count):
        place = (call.db.index, call.arguments.bytes(index))
        services.watches.add(session.transaction.watch, place, call.now_ms)
    call.reply.ok()


def unwatch(call: Call, session: Session, services: Services) -> None:
    """UNWATCH: end every WATCH."""
    services.watches.end(session.transaction.watch)
    call.reply.ok()
