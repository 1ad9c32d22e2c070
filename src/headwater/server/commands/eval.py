"""EVAL, EVALSHA, EVAL_RO and EVALSHA_RO: Lua scripts (the extra ``lua``).

Source: redis.io, EVAL; Redis's eval.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.errors import CommandError
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
    """EVAL_RO script numkeys [key …] [arg …]: a write in the script is an error."""
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


def _key_count(call: Call) -> int:
    """The value of ``numkeys``. Raises `CommandError`."""
    count = call.arguments.integer(2)
    if count > call.arguments.count - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return count


def _taken(call: Call, services: Services) -> CachedScript:
    """The script that the request contains, which is cached from now on."""
    return services.scripts.take(call.arguments.bytes(1), loaded=False)


def _known(call: Call, services: Services) -> CachedScript:
    """The cached script that the request names by its SHA-1. Raises `CommandError`."""
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
        services.memory,
        read_only=read_only,
        seconds=services.config.lua_time_limit / 1000,
    )
    run.answer(tuple(words), key_count)
