"""ACL: users and their permissions.

Errors are Redis's (acl.c, aclCommand). Replies contain hashes of passwords, never passwords.
"""

from __future__ import annotations

import secrets

from headwater.commands.call import Call, shown
from headwater.commands.dispatch import find_command
from headwater.commands.help import wrong_arguments
from headwater.commands.table import every_command
from headwater.commands.table.foreign import FOREIGN
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import Double, Members
from headwater.server.services.acl.access import SUPERUSER
from headwater.server.services.acl.changes import AccessChanges
from headwater.server.services.acl.file import FileError
from headwater.server.services.acl.log import AclRefusal
from headwater.server.services.acl.permissions import COMMAND, Denial, denial, sentence
from headwater.server.services.acl.rules import CATEGORIES
from headwater.server.services.services import Services
from headwater.server.session.session import Session
from headwater.server.session.user import DEFAULT, Selector

MAX_PASSWORD_BITS = 4096
SHOWN_REFUSALS = 10
"""Number of entries that ACL LOG shows without a count."""

NO_FILE = (
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via "
    "the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "
    "configuration file set) in order to store users in the Redis configuration."
)
NOT_SAVED = "ERR There was an error trying to save the ACLs. Please check the server logs for more information"


def acl_cat(call: Call, session: Session, services: Services) -> None:
    """ACL CAT [category]: the categories, or the commands and subcommands of one."""
    arguments = call.arguments
    _at_most(arguments, 3)
    if arguments.count == 2:
        call.reply.bulks([category.encode() for category in CATEGORIES])
        return
    category = shown(arguments.bytes(2).lower())
    if category not in CATEGORIES:
        raise CommandError(f"ERR Unknown category '{shown(arguments.bytes(2)[:128])}'")
    call.reply.bulks(
        [command.name.encode() for command in every_command() if category in command.categories]
    )


def acl_deluser(call: Call, session: Session, services: Services) -> None:
    """ACL DELUSER name …: the number of deleted users; their connections are closed."""
    names = call.arguments.values(2)
    if DEFAULT in names:
        raise CommandError("ERR The 'default' user cannot be removed")
    deleted = 0
    for name in names:
        user = services.access.users.get(name)
        if user is not None:
            _changes(session, services).delete_user(user)
            deleted += 1
    call.reply.integer(deleted)


def acl_dryrun(call: Call, session: Session, services: Services) -> None:
    """ACL DRYRUN user command [argument …]: OK, or the reason why the user may not run it, as a sentence."""
    name, request = call.arguments.bytes(2), Arguments.of(*call.arguments.values(3))
    user = services.access.users.get(name)
    if user is None:
        raise CommandError(f"ERR User '{shown(name)}' not found")
    try:
        command = find_command(request).command
    except CommandError as error:
        if str(error).startswith("ERR wrong number"):
            raise
        typed = shown(request.bytes(0))
        permitted = any(one.permits(typed.lower(), request) for one in user.selectors)
        if typed.lower() in FOREIGN and not permitted:  # rules may name such a command
            refused = Denial(COMMAND, request.bytes(0).lower(), 0)
            call.reply.bulk(sentence(user, refused).encode("utf-8", "surrogateescape"))
            return
        raise CommandError(f"ERR Command '{typed}' not found") from None
    found = denial(user, command, request)
    if found is None:
        call.reply.ok()
    else:
        text = sentence(user, found, verbose=True)
        call.reply.bulk(text.encode("utf-8", "surrogateescape"))


def acl_genpass(call: Call, session: Session, services: Services) -> None:
    """ACL GENPASS [bits]: random hexadecimal digits from the system, 256 bits by default."""
    arguments = call.arguments
    _at_most(arguments, 3)
    bits = arguments.integer(2) if arguments.count == 3 else 256
    if not 0 < bits <= MAX_PASSWORD_BITS:
        raise CommandError(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive "
            f"number up to {MAX_PASSWORD_BITS}"
        )
    digits = (bits + 3) // 4
    call.reply.bulk(secrets.token_hex((digits + 1) // 2)[:digits].encode())


def acl_getuser(call: Call, session: Session, services: Services) -> None:
    """ACL GETUSER name: flags, hashes of passwords and rules; nil if the user does not exist."""
    user = services.access.users.get(call.arguments.bytes(2))
    if user is None:
        call.reply.nil()
        return
    call.reply.value(
        {
            "flags": Members(user.flags()),
            "passwords": list(user.passwords),
            **_selector(user.root),
            "selectors": [_selector(selector) for selector in user.selectors[1:]],
        }
    )


def acl_list(call: Call, session: Session, services: Services) -> None:
    """ACL LIST: each user as a line of an ACL file."""
    call.reply.bulks([user.line() for user in services.access.sorted()])


def acl_users(call: Call, session: Session, services: Services) -> None:
    """ACL USERS: the names of all users."""
    call.reply.bulks([user.name for user in services.access.sorted()])


def acl_load(call: Call, session: Session, services: Services) -> None:
    """ACL LOAD: replace the users with those in ``aclfile``; an error in the file changes nothing."""
    if not services.access.aclfile:
        raise CommandError(NO_FILE)
    try:
        users = services.access.read_file()
    except FileError as error:
        raise CommandError(f"ERR {error}") from None
    _changes(session, services).replace_users(users)
    call.reply.ok()


def acl_save(call: Call, session: Session, services: Services) -> None:
    """ACL SAVE: write the current users to ``aclfile``."""
    if not services.access.aclfile:
        raise CommandError(NO_FILE)
    if not services.access.save():
        raise CommandError(NOT_SAVED)
    call.reply.ok()


def acl_log(call: Call, session: Session, services: Services) -> None:
    """ACL LOG [count | RESET]: refused commands and logins, newest first."""
    arguments, log = call.arguments, services.access.log
    _at_most(arguments, 3)
    count = SHOWN_REFUSALS
    if arguments.count == 3:
        if arguments.token(2) == b"RESET":
            log.reset()
            call.reply.ok()
            return
        count = max(0, arguments.integer(2))
    call.reply.value([_refusal(call, entry) for entry in log.entries[:count]])


def acl_setuser(call: Call, session: Session, services: Services) -> None:
    """ACL SETUSER name [rule …]: create or change a user; an error in a rule changes nothing."""
    made = services.access.changed(call.arguments.bytes(2), call.arguments.values(3))
    _changes(session, services).set_user(made)
    call.reply.ok()


def acl_whoami(call: Call, session: Session, services: Services) -> None:
    """ACL WHOAMI: the name of the session's user; nil for an embedded client, whose user is not listed."""
    if session.user is SUPERUSER:
        call.reply.nil()
    else:
        call.reply.bulk(session.user.name)


def _changes(session: Session, services: Services) -> AccessChanges:
    return AccessChanges(services.access, services.clients, session)


def _at_most(arguments: Arguments, count: int) -> None:
    """Raise `CommandError` for more than ``count`` arguments; the command table declares only the minimum."""
    if arguments.count > count:
        raise wrong_arguments(arguments)


def _selector(selector: Selector) -> dict[str, object]:
    return {
        "commands": selector.describe_commands(),
        "keys": selector.describe_keys(),
        "channels": selector.describe_channels(),
    }


def _refusal(call: Call, entry: AclRefusal) -> dict[str, object]:
    return {
        "count": entry.count,
        "reason": entry.kind,
        "context": entry.context,
        "object": entry.object,
        "username": entry.user,
        "age-seconds": Double(f"{(call.now_ms - entry.updated_ms) / 1000:g}"),
        "client-info": entry.client,
        "entry-id": entry.number,
        "timestamp-created": call.wall.wall_ms(entry.created_ms),
        "timestamp-last-updated": call.wall.wall_ms(entry.updated_ms),
    }
