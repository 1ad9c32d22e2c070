"""Delays the replies to failed logins, and logs them.

Rule 1. The reply to a failed AUTH or HELLO AUTH waits 100 ms after the first failure from an
        address, and twice as long after each further one, 2 s at most. A successful login does not
        wait, and does not shorten the delay of the next failure: otherwise a client that has one
        password could guess others.
Rule 2. Meanwhile the client's further requests wait. It does not count as blocked, and CLIENT
        UNBLOCK does not affect it. An EXEC with a failed login waits as a whole, and further logins
        in it are not checked: they would be guesses without a delay.
Rule 3. An address is an IPv4 address, the first 64 bits of an IPv6 address (one machine usually has
        all the others), or all clients of unix sockets. An embedded client is not delayed.
Rule 4. Failures are forgotten `FORGET_SECONDS` after the last one. At most `MAX_LOGIN_ADDRESSES`
        are stored; the one whose last failure is oldest is removed first.
Rule 5. Failed logins are logged with address and user, never with a password.
        `headwater.common.log_limit` limits the number of lines.

Time is the node's monotonic clock. Nothing sleeps.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from headwater.commands.call import Wait
from headwater.common.limits import MAX_LOGIN_ADDRESSES
from headwater.common.log_limit import LimitedLog
from headwater.resp.arguments import Arguments
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.session import Session

FIRST_DELAY_MS = 100
MOST_DELAY_MS = 2_000
FORGET_SECONDS = 300.0
_SHOWN_BYTES = 64
"""Maximum number of bytes of a user's name that are logged."""
_IPV6_NETWORK_BITS = 64


class LoginFailures:
    """Failed logins by address.

    >>> failures = LoginFailures()
    >>> [failures.failed("192.0.2.1", 0.0) for _ in range(7)]
    [100, 200, 400, 800, 1600, 2000, 2000]
    >>> failures.failed("192.0.2.1", FORGET_SECONDS)
    100
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Address → number of failures and time of the last one; oldest first."""

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, address: str, now: float) -> int:
        """Count a failure from an address. Return the time for which its reply waits, in milliseconds."""
        self._forget(now)
        count, _ = self._failures.pop(address, (0, 0.0))
        self._failures[address] = (count + 1, now)
        if len(self._failures) > MAX_LOGIN_ADDRESSES:
            self._failures.popitem(last=False)
        return min(FIRST_DELAY_MS << min(count, 10), MOST_DELAY_MS)

    def _forget(self, now: float) -> None:
        while self._failures:
            address, (_, last) = next(iter(self._failures.items()))
            if now - last < FORGET_SECONDS:
                return
            del self._failures[address]


class LoginDelays:
    """Delays the replies to the failed logins of a node."""

    def __init__(self, times: TurnClock, client_log: LimitedLog) -> None:
        self._times = times
        self._client_log = client_log
        self._failures = LoginFailures()
        self._held: dict[Session, bool] = {}
        """Sessions whose reply waits → True if their command itself failed."""
        self._owed_ms = 0
        """Delay for failed logins in the current EXEC, in milliseconds; 0 if none failed."""

    def __contains__(self, session: object) -> bool:
        return session in self._held

    def refuse(self, session: Session, user: bytes, reply: bytes) -> Wait | None:
        """Delay ``reply`` to a failed login of ``session``. Return the wait, or None if the command
        replies immediately: to an embedded client, or as part of EXEC."""
        if session.client.kind == "embedded":
            return None
        delay_ms = self._failures.failed(address_of(session), self._times.monotonic())
        self._client_log.warning(
            "login refused: user %s from %s",
            shown_name(user),
            session.client.address or session.client.kind,
        )
        if not session.call.may_block:
            self._owed_ms = delay_ms
            return None
        return self._hold(session, delay_ms, reply, failed=True)

    @property
    def closed(self) -> bool:
        """True if a login failed in the current EXEC, so further ones are not checked."""
        return self._owed_ms > 0

    def hold_transaction(self, session: Session, start: int) -> Wait | None:
        """Delay the reply of an EXEC in which a login failed; otherwise return None. The reply begins at ``start``
        in the outbox, and is removed from the outbox."""
        delay_ms, self._owed_ms = self._owed_ms, 0
        if not delay_ms:
            return None
        reply = bytes(session.output.outbox[start:])
        del session.output.outbox[start:]
        return self._hold(session, delay_ms, reply, failed=False)

    def release(self, session: Session) -> bool:
        """End the delay of ``session``. Return whether its command failed."""
        return self._held.pop(session)

    def forget(self, session: Session) -> None:
        """Forget a session that is closed."""
        self._held.pop(session, None)

    def _hold(self, session: Session, delay_ms: int, reply: bytes, *, failed: bool) -> Wait:
        arguments: Arguments = session.call.arguments
        wait = Wait([], delay_ms, arguments.copy())
        wait.at_timeout = reply if session.reply_mode == "on" else b""
        self._held[session] = failed
        return wait


def address_of(session: Session) -> str:
    """Return the address for which failures of ``session`` are counted (rule 3)."""
    if session.client.kind == "unix":
        return "unix"
    host = session.client.address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))


def shown_name(name: bytes) -> str:
    """Return a user's name, escaped and shortened for a line of the log.

    >>> print(shown_name(b"eve" + bytes([10]) + b"root"))
    'eve\\nroot'
    """
    shown = ascii(name[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
    return shown + ("..." if len(name) > _SHOWN_BYTES else "")
