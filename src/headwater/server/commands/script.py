"""SCRIPT: the cache of Lua scripts.

Source: redis.io, SCRIPT LOAD; Redis's eval.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.server.commands.function import FLUSH_MODES
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def script_load(call: Call, session: Session, services: Services) -> None:
    """SCRIPT LOAD script: cache the script; the reply is its SHA-1."""
    call.reply.bulk(services.scripts.take(call.arguments.bytes(2), loaded=True).sha)


def script_exists(call: Call, session: Session, services: Services) -> None:
    """SCRIPT EXISTS sha1 [sha1 …]: 1 for each script that is cached, else 0."""
    call.reply.array(call.arguments.count - 2)
    for index in range(2, call.arguments.count):
        call.reply.integer(int(services.scripts.find(call.arguments.bytes(index)) is not None))


def script_flush(call: Call, session: Session, services: Services) -> None:
    """SCRIPT FLUSH [ASYNC|SYNC]: empty the cache."""
    arguments = call.arguments
    if arguments.count > 3 or (arguments.count == 3 and arguments.token(2) not in FLUSH_MODES):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    services.scripts.flush()
    call.reply.ok()


def script_kill(call: Call, session: Session, services: Services) -> None:
    """SCRIPT KILL: always an error, because this command never runs while a script runs."""
    raise CommandError("NOTBUSY No scripts in execution right now.")
