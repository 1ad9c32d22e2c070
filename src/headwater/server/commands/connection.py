"""HELLO, AUTH, SELECT, PING, ECHO, QUIT, RESET.

The error texts are Redis's: clients use them to choose between RESP3 and RESP2.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, Wait, shown
from headwater.commands.databases import database_at
from headwater.errors import CommandError
from headwater.server.identity import COMPATIBLE_VERSION, SERVER_NAME, version
from headwater.server.services.services import Services
from headwater.server.session.session import Session
from headwater.server.session.user import DEFAULT

BAD_CREDENTIALS = "WRONGPASS invalid username-password pair or user is disabled."
NOTHING_TO_AUTHENTICATE = (
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?"
)
HELLO_NEEDS_AUTH = (
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> "
    "AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol "
    "version at the same time"
)


def is_printable(text: bytes) -> bool:
    """Return whether ``text`` has only bytes from ``!`` to ``~``, as a client's name must."""
    return all(0x21 <= byte <= 0x7E for byte in text)


def check_client_name(name: bytes) -> None:
    """Raise `CommandError` if ``name`` is not allowed in a line of CLIENT LIST."""
    if not is_printable(name):
        raise CommandError(
            "ERR Client names cannot contain spaces, newlines or special characters."
        )


def hello(call: Call, session: Session, services: Services) -> Wait | None:
    """HELLO [2|3 [AUTH user password] [SETNAME name]]: choose the protocol; the reply describes the
    server."""
    arguments, resp = call.arguments, session.resp
    if arguments.count > 1:
        resp = arguments.integer(1, error="ERR Protocol version is not an integer or out of range")
        if resp not in {2, 3}:
            raise CommandError("NOPROTO unsupported protocol version")
    credentials: tuple[bytes, bytes] | None = None
    name: bytes | None = None
    index = 2
    while index < arguments.count:
        option, more = arguments.token(index), arguments.count - index - 1
        if option == b"AUTH" and more >= 2:
            credentials = (arguments.bytes(index + 1), arguments.bytes(index + 2))
            index += 3
        elif option == b"SETNAME" and more >= 1:
            name = arguments.bytes(index + 1)
            check_client_name(name)
            index += 2
        else:
            typed = shown(arguments.bytes(index))
            raise CommandError(f"ERR Syntax error in HELLO option '{typed}'")
    if credentials is not None:
        refused = _authenticate(session, services, *credentials)
        if refused is not None:
            return refused
    if not session.authenticated:
        raise CommandError(HELLO_NEEDS_AUTH)
    if name is not None:
        session.client.name = name
    session.resp = resp
    call.reply.value(
        {
            "server": "redis",
            "version": COMPATIBLE_VERSION,
            "proto": resp,
            "id": session.id,
            "mode": "standalone",
            "role": "master",
            "modules": [],
            "server_name": SERVER_NAME,
            "headwater_version": version(),
        }
    )
    return None


def auth(call: Call, session: Session, services: Services) -> Wait | None:
    """AUTH [user] password: log in."""
    arguments = call.arguments
    if arguments.count > 3:
        raise CommandError(SYNTAX)
    if arguments.count == 2:
        if services.access.default.nopass:
            raise CommandError(NOTHING_TO_AUTHENTICATE)
        credentials = (DEFAULT, arguments.bytes(1))
    else:
        credentials = (arguments.bytes(1), arguments.bytes(2))
    refused = _authenticate(session, services, *credentials)
    if refused is None:
        call.reply.ok()
    return refused


def _authenticate(
    session: Session, services: Services, user: bytes, password: bytes
) -> Wait | None:
    """Log the session in. If the credentials are wrong, return the `Wait` that delays the reply WRONGPASS,
    or raise `CommandError` if it cannot be delayed."""
    error = CommandError(BAD_CREDENTIALS)
    if not session.call.may_block and services.authorization.logins.closed:
        raise error
    if services.authorization.authenticate(session, user, password):
        return None
    held = services.authorization.logins.refuse(
        session, user, b"-%b\r\n" % BAD_CREDENTIALS.encode()
    )
    if held is None:
        raise error
    services.observer.count_error(error)
    return held


def select(call: Call, session: Session, services: Services) -> None:
    """SELECT index: choose the database, 0 to 15."""
    session.db_index = database_at(call, 1).index
    call.reply.ok()


def ping(call: Call, session: Session, services: Services) -> None:
    """PING [text]: PONG or the text; for a RESP2 client with subscriptions, as a message."""
    if call.arguments.count > 2:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    if session.subscriptions.active and session.resp == 2:
        call.reply.bulks([b"pong", *(call.arguments.values(1) or [b""])])
        return
    if call.arguments.count == 2:
        call.reply.bulk(call.arguments.bytes(1))
    else:
        call.reply.simple(b"PONG")


def echo(call: Call, session: Session, services: Services) -> None:
    """ECHO text: the text."""
    call.reply.bulk(call.arguments.bytes(1))


def quit_(call: Call, session: Session, services: Services) -> None:
    """QUIT: close the connection after the reply."""
    call.reply.ok()
    session.closing = True


def reset(call: Call, session: Session, services: Services) -> None:
    """RESET: return to the state of a new connection, except for the values of CLIENT SETINFO."""
    services.leave_transaction(session)
    services.observer.stop_monitoring(session)
    services.pubsub.leave(session)
    session.db_index = 0
    session.resp = 2
    session.client.name = b""
    session.reply_mode = "on"
    session.call.touches = True
    services.authorization.set_initial_user(session)
    call.reply.simple(b"RESET")
