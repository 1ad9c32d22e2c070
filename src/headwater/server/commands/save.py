"""SAVE, BGSAVE, BGREWRITEAOF, which write an image of the store (services/storage/checkpoints.py), and LASTSAVE.

All three write the same image. SAVE waits for it, and blocks only its own client if a helper writes it.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, Wait
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.services.storage.checkpoint_statistics import REWRITE, SAVE
from headwater.server.services.storage.checkpoints import Checkpoints
from headwater.server.session.session import Session

SAVE_RECHECK_MS = 20
"""Interval at which a blocked SAVE checks whether its image is written, in milliseconds."""

_IN_PROGRESS = "ERR Background save already in progress"


def lastsave(call: Call, session: Session, services: Services) -> None:
    """LASTSAVE: the time of the last image, in Unix seconds; before the first image, the time when the store
    was opened."""
    call.reply.integer(services.storage.checkpoints.statistics.last_save)


def save(call: Call, session: Session, services: Services) -> Wait | None:
    """SAVE: write an image and wait until it is durable."""
    checkpoints = _checkpoints(services)
    if not session.blocked:
        if checkpoints.running:
            raise CommandError(_IN_PROGRESS)
        if not call.may_block:
            raise CommandError("ERR SAVE cannot wait in a transaction or a script; use BGSAVE")
        checkpoints.request(SAVE)
    if checkpoints.running:
        waits = Wait([], 0, call.arguments.copy())
        waits.recheck_at_ms = call.now_ms + SAVE_RECHECK_MS
        return waits
    if not checkpoints.statistics.last_succeeded:
        raise CommandError("ERR the image could not be written; the server's log says why")
    call.reply.ok()
    return None


def bgsave(call: Call, session: Session, services: Services) -> None:
    """BGSAVE [SCHEDULE]: write an image in the background; with SCHEDULE, after one that is being written."""
    arguments = call.arguments
    if arguments.count > 2 or (arguments.count == 2 and arguments.token(1) != b"SCHEDULE"):
        raise CommandError(SYNTAX)
    checkpoints = _checkpoints(services)
    scheduled = checkpoints.running
    if scheduled and arguments.count < 2:
        raise CommandError(_IN_PROGRESS)
    checkpoints.request(SAVE)
    call.reply.simple(b"Background saving scheduled" if scheduled else b"Background saving started")


def bgrewriteaof(call: Call, session: Session, services: Services) -> None:
    """BGREWRITEAOF: write an image in the background and remove the journal files that it replaces."""
    checkpoints = _checkpoints(services)
    statistics = checkpoints.statistics
    if REWRITE in {statistics.current, statistics.requested}:
        raise CommandError("ERR Background append only file rewriting already in progress")
    scheduled = checkpoints.running
    checkpoints.request(REWRITE)
    call.reply.simple(
        b"Background append only file rewriting scheduled"
        if scheduled
        else b"Background append only file rewriting started"
    )


def _checkpoints(services: Services) -> Checkpoints:
    """Return the checkpoints of a node with a journal. Raises `CommandError` for a node without a journal."""
    if services.storage.journal is None:
        raise CommandError(
            "ERR this server runs with appendonly no and without save points, and stores nothing; "
            "start it with appendonly yes"
        )
    return services.storage.checkpoints
