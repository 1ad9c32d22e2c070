"""EVAL, EVALSHA, their read-only forms, and SCRIPT: Lua on the server (the extra ``lua``).

Source: redis.io, EVAL, SCRIPT LOAD; Redis's eval.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.help import write_help
from headwater.errors import CommandError
from headwater.server.commands.functions import FLUSH_MODES
from headwater.server.services.scripting.calls import ScriptRun

if TYPE_CHECKING:
    from headwater.server.services.scripting.cache import CachedScript
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session

_LENGTH_OF_SHA = 40
_UNKNOWN = "NOSCRIPT No matching script. Please use EVAL."


def eval_(call: Call, session: Session, services: Services) -> None:
    """EVAL script numkeys [key …] [arg …]."""
    count = _key_count(call)
    _run(call, session, services, _taken(call, services), count, False)


def eval_ro(call: Call, session: Session, services: Services) -> None:
    """EVAL_RO script numkeys [key …] [arg …]: a script that writes fails."""
    count = _key_count(call)
    _run(call, session, services, _taken(call, services), count, True)


def evalsha(call: Call, session: Session, services: Services) -> None:
    """EVALSHA sha1 numkeys [key …] [arg …]."""
    script = _known(call, services)
    _run(call, session, services, script, _key_count(call), False)


def evalsha_ro(call: Call, session: Session, services: Services) -> None:
    """EVALSHA_RO sha1 numkeys [key …] [arg …]."""
    script = _known(call, services)
    _run(call, session, services, script, _key_count(call), True)


def script_load(call: Call, session: Session, services: Services) -> None:
    """SCRIPT LOAD script: its SHA-1."""
    call.reply.bulk(services.scripts.take(call.arguments.bytes(2), loaded=True).sha)


def script_exists(call: Call, session: Session, services: Services) -> None:
    """SCRIPT EXISTS sha1 [sha1 …]: 1 or 0 for each."""
    call.reply.array(call.arguments.count - 2)
    for index in range(2, call.arguments.count):
        call.reply.integer(int(services.scripts.find(call.arguments.bytes(index)) is not None))


def script_flush(call: Call, session: Session, services: Services) -> None:
    """SCRIPT FLUSH [ASYNC|SYNC]."""
    arguments = call.arguments
    if arguments.count > 3 or (arguments.count == 3 and arguments.token(2) not in FLUSH_MODES):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    services.scripts.flush()
    call.reply.ok()


def script_kill(call: Call, session: Session, services: Services) -> None:
    """SCRIPT KILL: whoever asks is served between two scripts, so none is running."""
    raise CommandError("NOTBUSY No scripts in execution right now.")


def script_help(call: Call, session: Session, services: Services) -> None:
    """SCRIPT HELP."""
    write_help(
        call,
        b"SCRIPT",
        {b"EXISTS": "<sha1> [<sha1> ...]", b"FLUSH": "[ASYNC|SYNC]", b"LOAD": "<script>"},
    )


def _key_count(call: Call) -> int:
    """numkeys. Raises `CommandError`."""
    count = call.arguments.integer(2)
    if count > call.arguments.count - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return count


def _taken(call: Call, services: Services) -> CachedScript:
    return services.scripts.take(call.arguments.bytes(1), loaded=False)


def _known(call: Call, services: Services) -> CachedScript:
    sha = call.arguments.bytes(1)
    script = services.scripts.find(sha) if len(sha) == _LENGTH_OF_SHA else None
    if script is None:
        raise CommandError(_UNKNOWN)
    return script


def _run(
    call: Call,
    session: Session,
    services: Services,
    script: CachedScript,
    key_count: int,
    read_only: bool,
) -> None:
    arguments = call.arguments
    words = [arguments.bytes(index) for index in range(3, arguments.count)]
    run = ScriptRun(
        session,
        script,
        services.scripts.interpreter,
        services.runner,
        services.authorization,
        read_only=read_only,
        seconds=services.config.lua_time_limit / 1000,
    )
    run.answer(tuple(words), key_count)
