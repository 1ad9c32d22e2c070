"""WAIT and WAITAOF.

A server has no replicas, so WAIT counts none. WAITAOF waits for the journal's fsync.
"""

from __future__ import annotations

from headwater.commands.call import Call, Wait
from headwater.commands.times import milliseconds
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session

WAITAOF_RECHECK_MS = 10
"""Interval in ms at which a blocked WAITAOF checks for the fsync, which happens at most once a second."""


def wait(call: Call, session: Session, services: Services) -> Wait | None:
    """WAIT numreplicas timeout: the number of replicas that have this client's writes, 0.

    With ``numreplicas`` above 0 the client waits for ``timeout`` ms, or forever if that is 0, as in Redis.
    """
    wanted = call.arguments.integer(1)
    timeout_ms = milliseconds(call.arguments, 2, call.now_ms)
    if wanted <= 0 or not call.may_block:
        call.reply.integer(0)
        return None
    waits = Wait([], timeout_ms, call.arguments.copy())
    waits.at_timeout = b":0\r\n"
    return waits


def waitaof(call: Call, session: Session, services: Services) -> Wait | None:
    """WAITAOF numlocal numreplicas timeout: 1 if this client's writes are on disk, else 0, and the number of
    replicas that have them on disk.

    With ``appendfsync always`` they are on disk when the reply is sent, with ``everysec`` after the next fsync.
    With ``no`` the system decides, and the server learns of it only when the journal starts its next file.
    """
    arguments = call.arguments
    local = arguments.integer(1)
    if not 0 <= local <= 1:
        raise CommandError("ERR value is out of range, value must between 0 and 1")
    replicas = arguments.integer(2, error="ERR value is out of range, must be positive")
    if replicas < 0:
        raise CommandError("ERR value is out of range, must be positive")
    timeout_ms = milliseconds(arguments, 3, call.now_ms)
    if local and (services.storage.journal is None or not services.config.appendonly):
        raise CommandError(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
        )
    durable = int(_is_durable(session, services))
    answer = b"*2\r\n:%d\r\n:0\r\n" % durable
    if (durable >= local and not replicas) or not call.may_block:
        call.reply.raw(answer)
        return None
    waits = Wait([], timeout_ms, arguments.copy())
    waits.at_timeout = answer
    waits.recheck_at_ms = None if durable else call.now_ms + WAITAOF_RECHECK_MS
    return waits


def _is_durable(session: Session, services: Services) -> bool:
    """Return whether all of this client's writes are known to be on disk when this turn's replies are sent."""
    journal, records = services.storage.journal, services.records
    if journal is None:
        return False
    if not session.blocked and records.holds_facts():
        session.wrote_turn = records.turn
    return journal.policy == "always" or session.wrote_turn <= journal.statistics().durable_turn
