"""Decides whether a user may run a request.

    command ─▶ its keys, as it uses them ─▶ its channels          all by a single selector

Rule 1. Unrestricted users are not checked (`User.unrestricted`); callers test that first.
Rule 2. If no selector permits a request, the reported refusal is that of the selector that got furthest: a channel
        is further than a key, a key is further than the command, and a later key than an earlier one.
Rule 3. A key's flags determine the permissions: reading needs ``%R``; inserting, updating and
        deleting need ``%W``. A command that neither reads nor changes a value (EXISTS, WATCH) needs
        the key to match any pattern.

Source: Redis, acl.c, ACLCheckAllUserCommandPerm, ACLSelectorCheckCmd.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.commands.key_specs import FoundKey, find_keys
from headwater.commands.table import Command
from headwater.resp.arguments import Arguments
from headwater.server.session.user import READ, WRITE, Selector, User, channel_fits

COMMAND = "command"
KEY = "key"
CHANNEL = "channel"

_WEIGHT = {COMMAND: 1, KEY: 2, CHANNEL: 3}

NO_LONGER = (
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. "
    "This command is no longer allowed for the following reason: {reason}"
)
REASONS = {
    COMMAND: "no permission to execute the command or subcommand",
    KEY: "no permission to touch the specified keys",
    CHANNEL: "no permission to access one of the channels used as arguments to the command",
}


class Denial(NamedTuple):
    """A refusal of a request: the ``kind`` (command, key, channel), the object, and its position in
    the request."""

    kind: str
    object: bytes
    position: int


class _Channels(NamedTuple):
    """The arguments of a command that are channels: from the first to ``last``; -1 means all."""

    last: int
    patterns: bool


_CHANNELS = {
    "publish": _Channels(1, patterns=False),
    "spublish": _Channels(1, patterns=False),
    "subscribe": _Channels(-1, patterns=False),
    "ssubscribe": _Channels(-1, patterns=False),
    "psubscribe": _Channels(-1, patterns=True),
}
"""Channels of commands by name. UNSUBSCRIBE and its variants are missing, because every user may unsubscribe."""

_NEEDS: dict[tuple[str, ...], int] = {}
"""Cache: combination of key flags → permissions that a key with these flags needs."""


def denial(user: User, row: Command, arguments: Arguments) -> Denial | None:
    """Return the reason why ``user`` may not run this request, or None if it may.

    >>> from headwater.commands.table import COMMANDS
    >>> user = User(b"alice", all_channels=False)
    >>> denial(user, COMMANDS[b"XLEN"], Arguments.of(b"XLEN", b"s"))
    Denial(kind='command', object=b'xlen', position=0)
    """
    if user.unrestricted:
        return None
    worst: Denial | None = None
    keys = find_keys(arguments, row.keys, row.finder) if row.keys else []
    for selector in user.selectors:
        found = _by_selector(selector, row, arguments, keys)
        if found is None:
            return None
        if worst is None or (_WEIGHT[found.kind], found.position) > (
            _WEIGHT[worst.kind],
            worst.position,
        ):
            worst = found
    return worst


def sentence(user: User, found: Denial, *, verbose: bool = False) -> str:
    """Format a denial. The text names the key or channel only if ``verbose`` (ACL DRYRUN)."""
    name = user.name.decode("utf-8", "surrogateescape")
    about = found.object.decode("utf-8", "surrogateescape")
    if found.kind == COMMAND:
        return f"User {name} has no permissions to run the '{about}' command"
    if verbose:
        return f"User {name} has no permissions to access the '{about}' {found.kind}"
    return f"No permissions to access a {found.kind}"


def _by_selector(
    selector: Selector, row: Command, arguments: Arguments, keys: list[FoundKey]
) -> Denial | None:
    if not (selector.permits(row.name, arguments) or "no_auth" in row.flags):
        return Denial(COMMAND, row.name.encode(), 0)
    if not selector.all_keys:
        for position, flags in keys:
            key = arguments.bytes(position)
            if not _key_fits(selector, key, _NEEDS.get(flags) or _needs(flags)):
                return Denial(KEY, key, position)
    if not selector.all_channels and row.name in _CHANNELS:
        last, pattern = _CHANNELS[row.name]
        for position in range(1, arguments.count if last < 0 else last + 1):
            channel = arguments.bytes(position)
            if not channel_fits(selector.channels, channel, pattern=pattern):
                return Denial(CHANNEL, channel, position)
    return None


def _key_fits(selector: Selector, key: bytes, needs: int) -> bool:
    return any(
        pattern.permissions & needs == needs and pattern.fits(key)
        for pattern in selector.patterns.values()
    )


def _needs(flags: tuple[str, ...]) -> int:
    """Return the permissions that a key with these flags needs (rule 3)."""
    needs = READ if "access" in flags else 0
    if not {"insert", "update", "delete"}.isdisjoint(flags):
        needs |= WRITE
    _NEEDS[flags] = needs
    return needs
