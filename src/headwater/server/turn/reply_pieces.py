"""Continues replies that are written in pieces (commands/reply_tail.py)."""

from __future__ import annotations

from headwater.engine.bodies.sealed_block import ColdBlocks
from headwater.errors import JournalDamaged
from headwater.server.services.faults import WHOLE
from headwater.server.services.services import Services
from headwater.server.services.storage.cold_reads import ColdRead
from headwater.server.session.session import Session


def continue_reply(session: Session, services: Services) -> bool:
    """Write the next piece of the reply to ``session``. Return False if the client must read more first. If
    blocks must be read from disk, the session waits for them. If one of them is damaged, or writing fails, the
    connection is closed: the reply has begun, so it can no longer become an error."""
    if not session.output.takes_more(services.clients.output_ahead_bytes):
        return False
    bodies, blocked = services.keyspace.sealing.bodies, services.blocked
    bodies.may_wait = blocked.cold_reads.deliver(session)
    try:
        session.output.write_piece()
    except ColdBlocks as cold:
        blocked.block(session, ColdRead(None, cold.wanted, cold.ahead))
    except JournalDamaged as error:
        _end(session, services, f"entries cannot be read from disk. {error}")
    except Exception as error:
        title = "the rest of a long reply"
        refusal = services.faults.refuse(error, title, changed=False, outcome=WHOLE)
        _end(session, services, str(refusal))
    else:
        blocked.cold_reads.end(session)
    finally:
        bodies.may_wait = True
        bodies.release()
    return True


def _end(session: Session, services: Services, reason: str) -> None:
    session.output.tail, session.closing = None, True
    services.client_log.warning(
        "client %s (%s) is disconnected in the middle of a reply: %s",
        session.id,
        session.client.address,
        reason,
    )
