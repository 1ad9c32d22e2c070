"""CLIENT: show, close and unblock clients.

CLIENT PAUSE is in client_pause.py, CLIENT TRACKINGINFO and the like in client_tracking.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.commands.call import SYNTAX, Call, shown
from headwater.errors import CommandError
from headwater.server.commands.connection import check_client_name, is_printable
from headwater.server.services.client_list import describe
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_TYPES = frozenset({b"NORMAL", b"MASTER", b"REPLICA", b"SLAVE", b"PUBSUB"})
"""The types of clients."""
_BY_ROLE = {"S": b"REPLICA", "M": b"MASTER"}

Filter = Callable[[Session], bool]


def client_id(call: Call, session: Session, services: Services) -> None:
    """CLIENT ID: the connection's number, which is never reused."""
    call.reply.integer(session.id)


def client_getname(call: Call, session: Session, services: Services) -> None:
    """CLIENT GETNAME: the connection's name, nil if it has none."""
    if session.client.name:
        call.reply.bulk(session.client.name)
    else:
        call.reply.nil()


def client_setname(call: Call, session: Session, services: Services) -> None:
    """CLIENT SETNAME name: set the connection's name; an empty ``name`` removes it."""
    name = call.arguments.bytes(2)
    check_client_name(name)
    session.client.name = name
    call.reply.ok()


def client_setinfo(call: Call, session: Session, services: Services) -> None:
    """CLIENT SETINFO LIB-NAME|LIB-VER text."""
    option, value = call.arguments.token(2), call.arguments.bytes(3)
    if option not in {b"LIB-NAME", b"LIB-VER"}:
        typed = shown(call.arguments.bytes(2))
        raise CommandError(f"ERR Unrecognized option '{typed}'")
    if not is_printable(value):
        raise CommandError(
            f"ERR {option.decode()} cannot contain spaces, newlines or special characters."
        )
    if option == b"LIB-NAME":
        session.client.lib_name = value
    else:
        session.client.lib_version = value
    call.reply.ok()


def client_info(call: Call, session: Session, services: Services) -> None:
    """CLIENT INFO: this connection's line of CLIENT LIST."""
    call.reply.verbatim(_line(session, services, running=True))


def client_list(call: Call, session: Session, services: Services) -> None:
    """CLIENT LIST [TYPE type | ID id …]: a line for each connection."""
    arguments = call.arguments
    chosen: Iterable[Session] = services.clients.sessions.values()
    if arguments.count == 4 and arguments.token(2) == b"TYPE":
        wanted = _type_at(call, 3)
        chosen = [one for one in services.clients.sessions.values() if _type_of(one) == wanted]
    elif arguments.count > 3 and arguments.token(2) == b"ID":
        ids = [
            arguments.integer(index, error="ERR Invalid client ID")
            for index in range(3, arguments.count)
        ]
        chosen = [services.clients.sessions[id_] for id_ in ids if id_ in services.clients.sessions]
    elif arguments.count > 2:
        raise CommandError(SYNTAX)
    lines = (_line(one, services, running=one is session) for one in chosen)
    call.reply.verbatim(b"".join(lines))


def client_kill(call: Call, session: Session, services: Services) -> None:
    """CLIENT KILL address, or CLIENT KILL filter value …: close connections."""
    arguments = call.arguments
    if arguments.count == 3:
        address = arguments.bytes(2).decode("utf-8", "surrogateescape")
        found = [one for one in services.clients.sessions.values() if one.client.address == address]
        if not found:
            raise CommandError("ERR No such client")
        call.reply.ok()
    else:
        found = _chosen(call, session, services)
        call.reply.integer(len(found))
    for victim in found:
        victim.closing = True
        if (
            victim is not session
        ):  # the session itself is closed after the commit that its reply waits for
            victim.tell()


def client_unblock(call: Call, session: Session, services: Services) -> None:
    """CLIENT UNBLOCK id [TIMEOUT|ERROR]: 1 if that client was blocked, else 0."""
    arguments = call.arguments
    if arguments.count > 4:
        raise CommandError("ERR wrong number of arguments for 'client|unblock' command")
    error = False
    if arguments.count == 4:
        reason = arguments.token(3)
        if reason not in {b"TIMEOUT", b"ERROR"}:
            raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
        error = reason == b"ERROR"
    target = services.clients.sessions.get(arguments.integer(2))
    unblocked = target is not None and services.blocked.unblock(target, error=error)
    if unblocked and error:  # As in Redis, this counts as a failed command, too.
        services.observer.commands[b"CLIENT|UNBLOCK"].failed += 1
    call.reply.integer(int(unblocked))


def client_reply(call: Call, session: Session, services: Services) -> None:
    """CLIENT REPLY ON|OFF|SKIP: only ON has a reply."""
    mode = call.arguments.token(2)
    if mode == b"ON":
        session.reply_mode = "on"
        call.reply.ok()
    elif mode == b"OFF":
        session.reply_mode = "off"
    elif mode == b"SKIP":
        if session.reply_mode != "off":
            session.reply_mode = "skip"
    else:
        raise CommandError(SYNTAX)


def client_switch(call: Call, session: Session, services: Services) -> None:
    """CLIENT NO-TOUCH ON|OFF: with ON, the client's commands do not reset idle times (OBJECT IDLETIME).
    CLIENT NO-EVICT ON|OFF: accepted without effect, because no client is ever evicted."""
    word = call.arguments.token(2)
    if word not in {b"ON", b"OFF"}:
        raise CommandError(SYNTAX)
    if call.arguments.token(1) == b"NO-TOUCH":
        call.touches = word == b"OFF"
    call.reply.ok()


def _line(session: Session, services: Services, *, running: bool) -> bytes:
    """Return a client's line of CLIENT LIST, with its line end."""
    shown = describe(
        session,
        times=services.times,
        blocked=services.blocked,
        watches=services.watches,
        running=running,
    )
    return shown + b"\n"


def _type_of(session: Session) -> bytes:
    other = b"PUBSUB" if session.subscriptions.active else b"NORMAL"
    return _BY_ROLE.get(session.client.role, other)


def _type_at(call: Call, index: int) -> bytes:
    """Return the client type at ``index``. Raises `CommandError` if the type does not exist."""
    word = call.arguments.token(index)
    if word not in _TYPES:
        typed = shown(call.arguments.bytes(index))
        raise CommandError(f"ERR Unknown client type '{typed}'")
    return b"REPLICA" if word == b"SLAVE" else word


def _chosen(call: Call, session: Session, services: Services) -> list[Session]:
    """Return the sessions that match all filters of CLIENT KILL."""
    arguments = call.arguments
    if arguments.count % 2:
        raise CommandError(SYNTAX)
    filters: list[Filter] = []
    skip_self = True
    for index in range(2, arguments.count, 2):
        if arguments.token(index) == b"SKIPME":
            answer = arguments.token(index + 1)
            if answer not in {b"YES", b"NO"}:
                raise CommandError(SYNTAX)
            skip_self = answer == b"YES"
        else:
            filters.append(_filter(call, services, index))
    return [
        one
        for one in list(services.clients.sessions.values())
        if all(fits(one) for fits in filters) and not (skip_self and one is session)
    ]


def _filter(call: Call, services: Services, index: int) -> Filter:
    """Return one filter of CLIENT KILL, with its name at ``index`` and its value after it."""
    arguments = call.arguments
    name, value = arguments.token(index), arguments.bytes(index + 1)
    text = value.decode("utf-8", "surrogateescape")
    if name == b"ID":
        wanted = arguments.integer(index + 1, default=0)
        if wanted < 1:
            raise CommandError("ERR client-id should be greater than 0")
        return lambda one: one.id == wanted
    if name == b"ADDR":
        return lambda one: one.client.address == text
    if name == b"LADDR":
        return lambda one: one.client.local_address == text
    if name == b"TYPE":
        kind = _type_at(call, index + 1)
        return lambda one: _type_of(one) == kind
    if name == b"USER":
        user = services.access.users.get(value)
        if user is None:
            raise CommandError(f"ERR No such user '{text}'")
        return lambda one: one.user is user
    if name == b"MAXAGE":
        age = arguments.integer(index + 1, error="ERR maxage is not an integer or out of range")
        if age < 1:
            raise CommandError("ERR maxage should be greater than 0")
        now = services.times.monotonic()
        return lambda one: now - one.client.created >= age
    raise CommandError(SYNTAX)
