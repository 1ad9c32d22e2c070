"""DEBUG: subcommands for tests of clients and of this server, if ``enable-debug-command`` allows them.

Redis's other subcommands examine Redis itself. Here they get Redis's error for unknown subcommands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from ipaddress import ip_address

from headwater.commands.call import NO_SUCH_KEY, Call, shown
from headwater.commands.help import write_lines, wrong_arguments
from headwater.commands.object import encoding
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.services.state import LOADING
from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")

MAX_SLEEP_SECONDS = 3600.0

_NOT_ALLOWED = (
    'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can '
    "run it from a local connection, otherwise you need to set this option in the configuration "
    "file, and then restart the server."
)

_HELP = (
    "DEBUG <subcommand> [<arg> ...]. Subcommands are:",
    "ERROR <text>",
    "    Replies with this error.",
    "LOADAOF",
    "    The same as RELOAD.",
    "LOG <message>",
    "    Writes a message to the log.",
    "OBJECT <key>",
    "    Shows how a value is stored.",
    "RELOAD [NOSAVE]",
    "    Replays the journal into an empty store, which replaces the current one.",
    "SET-ACTIVE-EXPIRE (0|1)",
    "    Stops (0) or starts (1) the deletion of expired keys, which are invisible in any case.",
    "SLEEP <seconds>",
    "    Blocks the whole server.",
    "HELP",
    "    Lists the subcommands of DEBUG.",
)


def check_debug_allowed(session: Session, services: Services) -> None:
    """Raise `CommandError` unless ``enable-debug-command`` allows DEBUG for this client."""
    if not is_allowed(services.config.enable_debug_command, session):
        raise CommandError(_NOT_ALLOWED)


def debug(call: Call, session: Session, services: Services) -> None:
    """DEBUG subcommand [argument …]."""
    check_debug_allowed(session, services)
    function = _SUBCOMMANDS.get((call.arguments.token(1), call.arguments.count))
    if function is None:
        raise wrong_arguments(call.arguments)
    function(call, session, services)


def is_allowed(who: str, session: Session) -> bool:
    """Return whether ``who``, the value ``yes``, ``local`` or ``no`` of a setting, includes this client."""
    return who == "yes" or (who == "local" and _is_local(session))


def _is_local(session: Session) -> bool:
    if session.client.kind in {"unix", "embedded"}:
        return True
    host = session.client.address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _sleep(call: Call, session: Session, services: Services) -> None:
    """DEBUG SLEEP seconds: block the server. An argument that is not a number counts as 0, as in Redis."""
    try:
        seconds = float(call.arguments.bytes(2))
    except ValueError:
        seconds = 0.0
    time.sleep(min(max(0.0, seconds), MAX_SLEEP_SECONDS))  # max() returns 0.0 for nan
    call.reply.ok()


def _log(call: Call, session: Session, services: Services) -> None:
    """DEBUG LOG message: write the message to the log."""
    log.warning("DEBUG LOG: %s", call.arguments.bytes(2).decode(errors="backslashreplace"))
    call.reply.ok()


def _error(call: Call, session: Session, services: Services) -> None:
    """DEBUG ERROR text: reply with the text as an error."""
    raise CommandError(shown(call.arguments.bytes(2)))


def _object(call: Call, session: Session, services: Services) -> None:
    """DEBUG OBJECT key: the fields of Redis's line that exist here, also for a key that has expired and is not
    deleted yet."""
    key = call.arguments.bytes(2)
    value = call.db.values.get(key)
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    name, used_ms = encoding(call, key, value), call.db.used_ms(key) or call.keyspace.opened_ms
    idle, used = max(0, call.now_ms - used_ms) // 1000, used_ms // 1000 % 2**24
    shape = b"Value at:0x%x refcount:1 encoding:%b lru:%d lru_seconds_idle:%d"
    call.reply.simple(shape % (id(value), name, used, idle))


def _set_active_expire(call: Call, session: Session, services: Services) -> None:
    """DEBUG SET-ACTIVE-EXPIRE 0|1: stop or start deleting expired keys. An argument that is not a number
    counts as 0."""
    services.state.expires_by_itself = call.arguments.integer(2, default=0) != 0
    call.reply.ok()


def _reload(call: Call, session: Session, services: Services) -> None:
    """DEBUG RELOAD [NOSAVE], DEBUG LOADAOF: replay the journal after it has this turn's facts and before
    the turn's replies are sent."""
    for index in range(2, call.arguments.count):
        if call.arguments.token(index) != b"NOSAVE":
            raise CommandError(
                "ERR DEBUG RELOAD replays the journal, which holds everything: its only option is NOSAVE"
            )
    if services.state.loading is not None:
        raise CommandError(LOADING)
    if services.storage.journal is None:
        raise CommandError(
            'ERR there is no journal to reload from: this server stores nothing (appendonly no, save "")'
        )
    if not call.may_block:
        raise CommandError("ERR DEBUG RELOAD is not allowed in a transaction or a script")
    services.state.reload_wanted = True
    call.reply.ok()


def _help(call: Call, session: Session, services: Services) -> None:
    """DEBUG HELP."""
    write_lines(call, _HELP)


_SUBCOMMANDS: dict[tuple[bytes, int], Callable[[Call, Session, Services], None]] = {
    (b"ERROR", 3): _error,
    (b"HELP", 2): _help,
    (b"LOADAOF", 2): _reload,
    (b"LOG", 3): _log,
    (b"OBJECT", 3): _object,
    (b"RELOAD", 2): _reload,
    (b"RELOAD", 3): _reload,
    (b"SET-ACTIVE-EXPIRE", 3): _set_active_expire,
    (b"SLEEP", 3): _sleep,
}
