"""May this request run, by this user?

    command ─▶ its keys, each as it is used ─▶ its channels          by one selector alone

Rule 1. A user without restrictions is never asked (`User.unrestricted`); callers look first.
Rule 2. Where no selector allows a request, the refusal told is the one that came furthest: a channel
        before a key before the command, and of two keys the later.
Rule 3. How a key is used is told by its flags: what is read needs ``%R``, what is inserted, updated
        or deleted ``%W``; a command that neither reads nor changes a value (EXISTS, WATCH) needs the
        key to fit any pattern.

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
    """Why a request may not run: ``kind`` (command, key, channel), what it is about, and where that
    stands in the request."""

    kind: str
    object: bytes
    position: int


class _Channels(NamedTuple):
    """Which arguments of a command are channels: from the first to ``last``, -1 for all."""

    last: int
    patterns: bool


_CHANNELS = {
    "publish": _Channels(1, patterns=False),
    "spublish": _Channels(1, patterns=False),
    "subscribe": _Channels(-1, patterns=False),
    "ssubscribe": _Channels(-1, patterns=False),
    "psubscribe": _Channels(-1, patterns=True),
}
"""Leaving a channel is nobody's to forbid, so UNSUBSCRIBE and its kin are not here."""

_NEEDS: dict[tuple[str, ...], int] = {}
"""What each combination of key flags needs, worked out when it is met."""


def denial(user: User, row: Command, arguments: Arguments) -> Denial | None:
    """Why ``user`` may not run this request, None when it may.

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
    """A denial in words. Which key or channel it is about is told only to who may ask (ACL DRYRUN)."""
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
    if not (selector.all_commands or row.name in selector.allowed or "no_auth" in row.flags):
        words = selector.first_arguments.get(row.name)
        if words is None or arguments.count < 2 or arguments.bytes(1).lower() not in words:
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
    """What a key used so has to permit (rule 3)."""
    needs = READ if "access" in flags else 0
    if not {"insert", "update", "delete"}.isdisjoint(flags):
        needs |= WRITE
    _NEEDS[flags] = needs
    return needs
