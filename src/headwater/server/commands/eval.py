"""EVAL, EVALSHA, EVAL_RO and EVALSHA_RO: Lua scripts (the extra ``lua``).

Source: redis.io, EVAL; Redis's eval.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.server.services.scripting.calls import ScriptRun
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_LENGTH_OF_SHA = 40
_UNKNOWN = "NOSCRIPT No matching script. Please use EVAL."


def eval_(call: Call, session: Session, services: Services) -> None:
    """EVAL and EVAL_RO script numkeys [key …] [arg …], EVALSHA and EVALSHA_RO sha1 numkeys [key …] [arg …]: find the
    script, or compile and cache it, and run it. A write in a script of EVAL_RO or EVALSHA_RO fails."""
    arguments, observer, scripts = call.arguments, services.observer, services.scripts
    name = arguments.token(0)
    by_sha, read_only = name.startswith(b"EVALSHA"), name.endswith(b"_RO")
    observer.show_script(session, arguments)
    text = arguments.bytes(1)
    if by_sha and len(text) != _LENGTH_OF_SHA:
        raise CommandError(_UNKNOWN)
    key_count = _key_count(call)
    script = scripts.find(text) if by_sha else scripts.take(text, loaded=False)
    if script is None:
        raise CommandError(_UNKNOWN)
    if read_only and script.flags is not None and not script.read_only:
        raise CommandError("ERR Can not execute a script with write flag using *_ro command.")
    words = [arguments.bytes(index) for index in range(3, arguments.count)]
    run = ScriptRun(
        session,
        script,
        scripts.interpreter,
        services.runner,
        services.authorization,
        services.memory,
        read_only=read_only,
        seconds=services.config.lua_time_limit / 1000,
    )
    observer.monitors.source = b"lua"
    try:
        errors = run.answer(tuple(words), key_count)
    finally:
        observer.monitors.source = None
    if errors:
        observer.replied(name, errors)


def _key_count(call: Call) -> int:
    """Return the value of ``numkeys``. Raises `CommandError`."""
    count = call.arguments.integer(2)
    if count > call.arguments.count - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return count
