"""WAIT and WAITAOF: wait until replicas have this client's writes, or until they are on disk.

Rule. The offset for which a client waits is chosen once, when the command first runs. It is that of all writes so far, by
      whomever, if the client has written anything.
"""

from __future__ import annotations

from headwater.commands.call import Call, Wait
from headwater.commands.times import milliseconds
from headwater.errors import CommandError
from headwater.journal.format.records import GROUP_HEADER_BYTES, counted_bytes
from headwater.server.services.services import Services
from headwater.server.session.session import Session

WAITAOF_RECHECK_MS = 10
"""Interval in ms at which a blocked WAITAOF checks for the fsync, which happens at most once a second."""


def wait(call: Call, session: Session, services: Services) -> Wait | None:
    """WAIT numreplicas timeout: the number of replicas that have this client's writes.

    The client waits until that is ``numreplicas`` or more, for ``timeout`` ms at most, or forever if that is 0.
    """
    _refuse_on_replica(
        "WAIT",
        "since Redis 4.0 if a replica is configured to be writable (which is not the default) writes",
        services,
    )
    wanted = call.arguments.integer(1)
    timeout_ms = milliseconds(call.arguments, 2, call.now_ms)
    found = services.replication.replicas.count(_awaited(session, services), durable=False)
    if wanted <= found or not call.may_block:
        call.reply.integer(found)
        return None
    return _waits(call, session, services, timeout_ms, b":%d\r\n" % found)


def waitaof(call: Call, session: Session, services: Services) -> Wait | None:
    """WAITAOF numlocal numreplicas timeout: 1 if this client's writes are on disk, else 0, and the number of
    replicas that have them on disk.

    With ``appendfsync always`` they are on disk when the reply is sent, with ``everysec`` after the next fsync.
    With ``no`` the system decides, and the server learns of it only when the journal starts its next file.
    """
    _refuse_on_replica("WAITAOF", "writes", services)
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
    there = services.replication.replicas.count(_awaited(session, services), durable=True)
    answer = b"*2\r\n:%d\r\n:%d\r\n" % (durable, there)
    if (durable >= local and there >= replicas) or not call.may_block:
        call.reply.raw(answer)
        return None
    waits = _waits(call, session, services, timeout_ms, answer)
    waits.recheck_at_ms = None if durable else call.now_ms + WAITAOF_RECHECK_MS
    return waits


def _refuse_on_replica(name: str, writes: str, services: Services) -> None:
    """Refuse a command on a replica, in Redis's words."""
    if services.replication.primary is not None:
        raise CommandError(
            f"ERR {name} cannot be used with replica instances. Please also note that {writes} to replicas are just local "
            "and are not propagated."
        )


def _awaited(session: Session, services: Services) -> int:
    """Return the offset that replicas must have for this command."""
    found = services.replication.replicas.waiting.get(session)
    if session.blocked and found is not None:
        return found[1]
    records = services.records
    if records.holds_facts():
        session.wrote_turn = records.turn
    if not session.wrote_turn:
        return 0
    sealed = len(records.facts.data) - GROUP_HEADER_BYTES  # this command's own group is open
    turn = counted_bytes(records.facts.data, 0, sealed) if sealed > 0 else 0
    return services.replication.offset + turn


def _waits(
    call: Call, session: Session, services: Services, timeout_ms: int, answer: bytes
) -> Wait:
    replicas = services.replication.replicas
    replicas.ask()
    waits = Wait([], timeout_ms, call.arguments.copy())
    waits.at_timeout = answer
    if not session.blocked:
        replicas.waiting[session] = waits, _awaited(session, services)
    return waits


def _is_durable(session: Session, services: Services) -> bool:
    """Return whether all of this client's writes are known to be on disk when this turn's replies are sent."""
    journal, records = services.storage.journal, services.records
    if journal is None:
        return False
    if not session.blocked and records.holds_facts():
        session.wrote_turn = records.turn
    return journal.policy == "always" or session.wrote_turn <= journal.statistics().durable_turn
