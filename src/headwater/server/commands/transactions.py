"""MULTI, EXEC, DISCARD, WATCH, UNWATCH.

Rule 1. EXEC is one record group: the node opens it around the whole command (law 5).
Rule 2. A command that fails inside EXEC is an error in its place; the others stand, as in Redis.
Rule 3. EXEC holding a write is refused whole where the journal has no room for what is queued, as
        Redis refuses it whole: who writes data and a position beside it in one MULTI has both or none.
        Only a command that writes more than it was sent (a trim with ACKED, say) can be refused alone.
Rule 4. Nothing blocks inside EXEC: a read that would wait answers at once.
Rule 5. What the user may do is asked when a command is queued and again when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.commands.call import Call, Wait
from headwater.engine.facts import HEADROOM
from headwater.errors import CommandError, NoRoom
from headwater.limits import MAX_RECORD_GROUP_BYTES
from headwater.server.session.transaction import TransactionQueue

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


_FACTS: Final = 6
"""Facts of one command, at most, but for those whose number the data decides."""

_MOST_ADMITTED: Final = MAX_RECORD_GROUP_BYTES // 2
"""What may be too high a guess refuses nothing for being high."""


def multi(call: Call, session: Session, services: Services) -> None:
    """MULTI: queue what follows."""
    if session.transaction.queue is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction.queue = TransactionQueue()
    call.reply.ok()


def discard(call: Call, session: Session, services: Services) -> None:
    """DISCARD: forget the queue and every WATCH."""
    if session.transaction.queue is None:
        raise CommandError("ERR DISCARD without MULTI")
    services.leave_transaction(session)
    call.reply.ok()


def exec_(call: Call, session: Session, services: Services) -> Wait | None:
    """EXEC: run the queue as one step, unless a watched key changed (nil) or queueing failed."""
    queued = session.transaction.queue
    if queued is None:
        raise CommandError("ERR EXEC without MULTI")
    failed, broken = session.transaction.failed, services.watches.broken(session.transaction.watch)
    services.leave_transaction(session)
    if failed:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if broken:
        call.reply.nil_array()
        return None
    if queued.writes:
        try:
            # A fact has what its command was sent, a key in it up to three times.
            size = _FACTS * HEADROOM * len(queued) + 3 * queued.size
            call.admit(min(_MOST_ADMITTED, size))
        except NoRoom as error:
            raise aborted(error) from None
    start = len(session.output.outbox)
    call.reply.array(len(queued))
    own = call.arguments
    call.may_block = False
    try:
        services.runner.run_queued(session, queued)
    finally:
        call.may_block, call.arguments = True, own
    return services.authorization.logins.hold_transaction(session, start)


def aborted(error: CommandError) -> CommandError:
    """The error of an EXEC that was refused as a whole (Redis, multi.c, execCommandAbort)."""
    reason = str(error).removeprefix("ERR ")
    return CommandError(f"EXECABORT Transaction discarded because of: {reason}")


def watch(call: Call, session: Session, services: Services) -> None:
    """WATCH key [key …]: the next EXEC does nothing if one of them is modified before it."""
    if session.transaction.queue is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for index in range(1, call.arguments.count):
        services.watches.add(
            session.transaction.watch, (call.db.index, call.arguments.bytes(index))
        )
    call.reply.ok()


def unwatch(call: Call, session: Session, services: Services) -> None:
    """UNWATCH: forget every WATCH."""
    services.watches.end(session.transaction.watch)
    call.reply.ok()
