"""What to do about an error of the store: one table for every step of a member of a group.

    WAIT        the store cannot do this now: ask again
    RECONNECT   the connection is dead, or leads to a server that cannot help: open another, ask again
    REJOIN      the group is gone: create it again, ask again
    FAIL        the store will never take this: the delivery, or the publisher's call, fails
    END         no waiting helps: the consumer ends with the error

Rule 1. Waiting never uses up an attempt.
Rule 2. An error that the table does not name waits where nothing can be given up (reading, claiming,
        renewing), fails what it was about (settling, publishing), and ends a worker that has not
        joined its group yet: then it is more likely a mistake of the configuration than an outage.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.errors import Disconnected, StoreClosed
from headwater.groups.operation import GroupVanished, Refused


class Remedy(Enum):
    """What to do about an error; see the module."""

    WAIT = "wait"
    RECONNECT = "reconnect"
    REJOIN = "rejoin"
    FAIL = "fail"
    END = "end"


class Step(Enum):
    """What was being done when the error came."""

    JOIN = "join"
    """The first time that this consumer joins its group; later, joining is part of READ."""
    READ = "read"
    CLAIM = "claim"
    RENEW = "renew"
    SETTLE = "settle"
    PUBLISH = "publish"


WRITES_REFUSED: Final = frozenset({"OOM", "MISCONF", "NOREPLICAS"})
"""Codes of a store that can be read and takes no writes."""

CREDENTIALS: Final = frozenset({"WRONGPASS", "NOAUTH"})

CODES: Final[dict[str, Remedy]] = {
    **dict.fromkeys(WRITES_REFUSED, Remedy.WAIT),
    "BUSY": Remedy.WAIT,  # a script runs for too long
    "TRYAGAIN": Remedy.WAIT,  # a slot is on its way to another node
    "CLUSTERDOWN": Remedy.WAIT,
    "MOVED": Remedy.WAIT,
    "ASK": Remedy.WAIT,
    "NOSCRIPT": Remedy.WAIT,  # flushed between EVALSHA and EVAL
    "READONLY": Remedy.RECONNECT,  # a demoted primary: the address may lead to the new one
    "MASTERDOWN": Remedy.RECONNECT,
    "LOADING": Remedy.RECONNECT,
    "UNBLOCKED": Remedy.RECONNECT,  # a blocked read of a primary that was demoted
    "NOGROUP": Remedy.REJOIN,
    **dict.fromkeys(CREDENTIALS, Remedy.RECONNECT),  # credentials are checked by connecting
}
"""What an error code asks for at every step, but for `AT_FIRST`."""

AT_FIRST: Final[dict[str, Remedy]] = {
    **dict.fromkeys(CREDENTIALS, Remedy.END),
    "MOVED": Remedy.END,
    "ASK": Remedy.END,
}
"""What is different before the group was joined for the first time."""

OTHERWISE: Final[dict[Step, Remedy]] = {
    Step.JOIN: Remedy.END,
    Step.READ: Remedy.WAIT,
    Step.CLAIM: Remedy.WAIT,
    Step.RENEW: Remedy.WAIT,
    Step.SETTLE: Remedy.FAIL,
    Step.PUBLISH: Remedy.FAIL,
}
"""What codes ask for that are not in `CODES`: NOPERM, WRONGTYPE, ERR and others."""


def remedy(error: BaseException, step: Step) -> Remedy:
    """What to do about ``error``, met at ``step``.

    >>> remedy(Refused("OOM command not allowed when used memory > 'maxmemory'."), Step.SETTLE)
    <Remedy.WAIT: 'wait'>
    >>> remedy(Refused("NOPERM no permission"), Step.SETTLE)
    <Remedy.FAIL: 'fail'>
    """
    if isinstance(error, GroupVanished):
        return Remedy.REJOIN
    if isinstance(error, Refused):
        return _of_code(error.code, step)
    if isinstance(error, refused_credentials()):
        return _of_code("WRONGPASS", step)
    if isinstance(error, lost_connection()):
        return Remedy.RECONNECT
    return Remedy.END


def _of_code(code: str, step: Step) -> Remedy:
    if step is Step.JOIN and code in AT_FIRST:
        return AT_FIRST[code]
    return CODES.get(code, OTHERWISE[step])


def lost_connection() -> tuple[type[Exception], ...]:
    """The errors that mean: the store went away; what was sent may or may not have run."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import InvalidResponse
    from redis.exceptions import TimeoutError as RedisTimeoutError

    theirs = (RedisConnectionError, RedisTimeoutError, InvalidResponse)
    return (*theirs, Disconnected, StoreClosed, OSError)


def refused_credentials() -> tuple[type[Exception], ...]:
    """The errors that mean: the store does not know this user or password."""
    from redis.exceptions import AuthenticationError, AuthorizationError

    return (AuthenticationError, AuthorizationError)
