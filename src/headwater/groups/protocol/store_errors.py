"""The remedies for errors of the store: one table for every step of a member of a group.

    WAIT        the store cannot do this now: wait and repeat
    RECONNECT   the connection is broken, or its server cannot do this: connect again and repeat
    REJOIN      the group is gone: create it again and repeat
    FAIL        the store will never accept this: the delivery, or the publisher's call, fails
    END         waiting does not help: the consumer ends with the error

Rule 1. Waiting does not count as an attempt.
Rule 2. After an error reply that is not in the table, reading, claiming and renewing wait, because they cannot be
        given up. Settling and publishing fail. A worker that has not joined its group yet ends, because a
        wrong configuration is more likely than an outage. Any other exception ends the consumer.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.errors import Disconnected, StoreClosed
from headwater.groups.protocol.operation import GroupVanished, Refused


class Remedy(Enum):
    """The remedy for an error. The module's docstring describes the remedies."""

    WAIT = "wait"
    RECONNECT = "reconnect"
    REJOIN = "rejoin"
    FAIL = "fail"
    END = "end"


class Step(Enum):
    """The step at which an error occurred."""

    JOIN = "join"
    """This consumer joins its group for the first time. Later, joining is part of READ."""
    READ = "read"
    CLAIM = "claim"
    RENEW = "renew"
    SETTLE = "settle"
    PUBLISH = "publish"


WRITES_REFUSED: Final = frozenset({"OOM", "MISCONF", "NOREPLICAS"})
"""Error codes of a store that can be read but refuses writes."""

CREDENTIALS: Final = frozenset({"WRONGPASS", "NOAUTH"})

CODES: Final[dict[str, Remedy]] = {
    **dict.fromkeys(WRITES_REFUSED, Remedy.WAIT),
    "BUSY": Remedy.WAIT,  # a script runs for too long
    "TRYAGAIN": Remedy.WAIT,  # a slot migrates to another node
    "CLUSTERDOWN": Remedy.WAIT,
    "MOVED": Remedy.WAIT,
    "ASK": Remedy.WAIT,
    "NOSCRIPT": Remedy.WAIT,  # flushed between EVALSHA and EVAL
    "READONLY": Remedy.RECONNECT,  # a demoted primary: the address may now lead to the new primary
    "MASTERDOWN": Remedy.RECONNECT,
    "LOADING": Remedy.RECONNECT,
    "UNBLOCKED": Remedy.RECONNECT,  # a blocked read of a primary that was demoted
    "NOGROUP": Remedy.REJOIN,
    **dict.fromkeys(CREDENTIALS, Remedy.RECONNECT),  # credentials are checked by connecting
}
"""The remedy for an error code at every step, except those in `AT_FIRST`."""

AT_FIRST: Final[dict[str, Remedy]] = {
    **dict.fromkeys(CREDENTIALS, Remedy.END),
    "MOVED": Remedy.END,
    "ASK": Remedy.END,
}
"""The remedies that differ while the group is joined for the first time."""

OTHERWISE: Final[dict[Step, Remedy]] = {
    Step.JOIN: Remedy.END,
    Step.READ: Remedy.WAIT,
    Step.CLAIM: Remedy.WAIT,
    Step.RENEW: Remedy.WAIT,
    Step.SETTLE: Remedy.FAIL,
    Step.PUBLISH: Remedy.FAIL,
}
"""The remedies for codes that are not in `CODES`: NOPERM, WRONGTYPE, ERR and others."""


def remedy(error: BaseException, step: Step) -> Remedy:
    """Return the remedy for ``error`` at ``step``.

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
    """Return the errors of a broken connection: the last command may or may not have run."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import InvalidResponse
    from redis.exceptions import TimeoutError as RedisTimeoutError

    theirs = (RedisConnectionError, RedisTimeoutError, InvalidResponse)
    return (*theirs, Disconnected, StoreClosed, OSError)


def refused_credentials() -> tuple[type[Exception], ...]:
    """Return the errors of a store that does not accept this user or password."""
    from redis.exceptions import AuthenticationError, AuthorizationError

    return (AuthenticationError, AuthorizationError)
