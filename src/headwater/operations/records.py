"""The record of what operators did to a stream and its groups: the stream ``{stream}:hw:actions``.

Rule 1. Each action leaves one record: who, what, on how many entries or consumers, and on which first.
Rule 2. Who it was is what the server says. An embedded store has no users: there it is who runs the program.
Rule 3. A record that the server refuses does not undo the action; a warning says that it is missing.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
from collections.abc import Sequence
from enum import StrEnum

from headwater.groups.protocol.operation import Operation, Refused
from headwater.messages import actions_key

log = logging.getLogger("headwater.operations")

RECORDS = 1_000
"""About how many actions the record of a stream keeps."""

# Redis 7.0 refuses "this user"; CLIENT INFO has the name.
_NAMED = re.compile(r"User (\S+) has no permissions|\buser=(\S+)")


class Action(StrEnum):
    """What is done."""

    RELEASE = "release"
    """Pending entries are handed back: the next consumer that claims gets them. Delayed ones are due at once."""
    CLAIM = "claim"
    """They are given to another consumer, as XCLAIM does."""
    ACKNOWLEDGE = "acknowledge"
    """They are settled without being handled."""
    BURY = "bury"
    """They become dead letters, which can be replayed."""
    REPLAY = "replay"
    """Dead letters are handed back to their groups."""
    DROP = "drop"
    """Dead letters are deleted."""
    CANCEL = "cancel"
    """Scheduled messages are cancelled."""
    REAP = "reap"
    """Unused consumers are removed from a group."""
    RESET = "reset"
    """The position of a group is set."""
    TRIM = "trim"
    """The oldest entries of a stream are removed."""


def who() -> Operation[str]:
    """Return the name of the connection's user; ``unknown`` if the server does not tell.

    A refusal names the user, too. Of an embedded store it is who runs this program.
    """
    replies = yield [["ACL", "WHOAMI"], ["CLIENT", "INFO"]]
    first = replies[0]
    if isinstance(first, bytes):
        return first.decode("utf-8", "backslashreplace")
    if first is None:
        return _own_name()
    texts = (
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in replies
    )
    found = next(filter(None, map(_NAMED.search, texts)), None)
    return "unknown" if found is None else found[1] or found[2]


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.getuid())


def record(
    stream: str,
    action: Action,
    done: Sequence[str],
    *,
    group: str = "",
    to: str = "",
    refused: int = 0,
    count: int | None = None,
) -> Operation[None]:
    """Record an action on ``done``, ids or names, of which ``count`` is the number if they are not listed."""
    user = yield from who()
    number = len(done) if count is None else count
    replies = yield [
        [
            *("XADD", actions_key(stream), "MAXLEN", "~", RECORDS, "*"),
            *("user", user, "action", action, "group", group, "to", to),
            *("entries", number, "refused", refused, "first", done[0] if done else ""),
        ]
    ]
    if isinstance(replies[0], Refused):
        log.warning("this was done, but not recorded in %s: %s", actions_key(stream), replies[0])
