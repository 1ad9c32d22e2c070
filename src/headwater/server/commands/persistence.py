"""WAIT, WAITAOF, ROLE and what Redis does with files: which writes are safe, and where.

There are no replicas, and the journal holds everything; so WAIT counts none, WAITAOF waits for the
journal's fsync, and what would write a snapshot says that there is nothing to be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call, Wait
from headwater.commands.timeouts import milliseconds
from headwater.errors import CommandError

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session

WAITAOF_RECHECK_MS = 10
"""How often a blocked WAITAOF asks whether the fsync has come; it comes once a second at most."""

_NOT_YET = (
    "ERR {what} is not part of this release, and nothing is lost for it: {journal}. To keep a copy, "
    "copy the data directory of a stopped server."
)
_KEPT = "every write is in the journal before it is answered"
_NOT_KEPT = "this server runs with appendonly no, so it keeps nothing; start it with appendonly yes"


def wait(call: Call, session: Session, services: Services) -> Wait | None:
    """WAIT numreplicas timeout: how many replicas have what this client wrote, 0.

    Asked for more than none it waits until the time is over, for ever with 0, as Redis does.
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
    """WAITAOF numlocal numreplicas timeout: whether what this client wrote is on disk, and on how
    many replicas.

    With ``appendfsync always`` it is when the answer leaves; with ``everysec`` after the next fsync;
    with ``no`` whenever the system likes, of which nobody hears before the journal's next file.
    """
    arguments = call.arguments
    local = arguments.integer(1)
    if not 0 <= local <= 1:
        raise CommandError("ERR value is out of range, value must between 0 and 1")
    replicas = arguments.integer(2, error="ERR value is out of range, must be positive")
    if replicas < 0:
        raise CommandError("ERR value is out of range, must be positive")
    timeout_ms = milliseconds(arguments, 3, call.now_ms)
    if local and services.journal is None:
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
    """Whether all that this client wrote is known to be on disk when this turn's answers leave."""
    journal, records = services.journal, services.records
    if journal is None:
        return False
    if not session.blocked and records.holds_facts():
        session.wrote_turn = records.turn
    return journal.policy == "always" or session.wrote_turn <= journal.statistics().durable_turn


def lastsave(call: Call, session: Session, services: Services) -> None:
    """LASTSAVE: nothing was ever saved; exporters ask INFO's rdb_last_save_time."""
    raise _not_yet("LASTSAVE", services)


def save(call: Call, session: Session, services: Services) -> None:
    """SAVE."""
    raise _not_yet("SAVE", services)


def bgsave(call: Call, session: Session, services: Services) -> None:
    """BGSAVE [SCHEDULE]."""
    arguments = call.arguments
    if arguments.count > 2 or (arguments.count == 2 and arguments.token(1) != b"SCHEDULE"):
        raise CommandError("ERR syntax error")
    raise _not_yet("BGSAVE", services)


def bgrewriteaof(call: Call, session: Session, services: Services) -> None:
    """BGREWRITEAOF."""
    raise _not_yet("BGREWRITEAOF", services)


def _not_yet(what: str, services: Services) -> CommandError:
    journal = _KEPT if services.journal is not None else _NOT_KEPT
    return CommandError(_NOT_YET.format(what=what, journal=journal))


def role(call: Call, session: Session, services: Services) -> None:
    """ROLE: master, the offset of replication, the replicas."""
    call.reply.array(3)
    call.reply.bulk(b"master")
    call.reply.integer(0)
    call.reply.array(0)


def replicaof(call: Call, session: Session, services: Services) -> None:
    """REPLICAOF NO ONE; anything else is refused."""
    if call.arguments.token(1) != b"NO" or call.arguments.token(2) != b"ONE":
        raise CommandError(
            "ERR there is no replication in this release: this server is a primary and stays one"
        )
    call.reply.ok()
