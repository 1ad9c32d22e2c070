"""Records the actions of operators on a stream and its groups, in the stream ``{stream}:hw:actions``.

Rule 1. Each action leaves one record: the user, the action, the number of entries or consumers, and the first one.
Rule 2. The user is the one that the server reports. For an embedded store, it is the user that runs the program.
Rule 3. If the server refuses a record, the action is not undone. A warning says that the record is missing.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
from collections.abc import Sequence
from enum import StrEnum

from headwater.groups.protocol.operation import Operation, Refused
from headwater.messages.keys import actions_key

log = logging.getLogger("headwater.operations")

RECORDS = 1_000
"""Approximate number of actions that the record of a stream keeps."""

# The refusal of Redis 7.0 says "this user", without the name, which CLIENT INFO reports.
_NAMED = re.compile(r"User (\S+) has no permissions|\buser=(\S+)")


class Action(StrEnum):
    """The actions that are recorded."""

    RELEASE = "release"
    """Pending entries are handed back: the next consumer that claims gets them. Delayed ones become due."""
    CLAIM = "claim"
    """Pending entries are given to another consumer, as XCLAIM does."""
    ACKNOWLEDGE = "acknowledge"
    """Pending entries are settled without being handled."""
    BURY = "bury"
    """Pending entries become dead letters, which can be replayed."""
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
    """Return the name of the connection's user; ``unknown`` if the server does not report it.

    A refusal of ACL WHOAMI also names the user. For an embedded store, it is the user that runs this program.
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
    except KeyError:  # a user without a name, as in containers
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
    """Record an action on the ids or names ``done``. ``count`` is their number if ``done`` does not list all."""
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
        log.warning("action done, but not recorded in %s: %s", actions_key(stream), replies[0])
