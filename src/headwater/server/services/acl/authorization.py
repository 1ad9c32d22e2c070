"""Logs sessions in, checks their permissions before commands, and records refusals."""

from __future__ import annotations

from collections.abc import Callable

from headwater.commands.table import Command
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.services.acl.access import SUPERUSER, AccessControl
from headwater.server.services.acl.log import AUTH
from headwater.server.services.acl.login_delays import LoginDelays
from headwater.server.services.acl.permissions import NO_LONGER, REASONS, denial, sentence
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.session import Session
from headwater.server.session.user import User


class Authorization:
    """Applies the users of ``access`` to sessions.

    ``logins`` delays the replies to failed logins. ``times`` is the clock for the times in ACL LOG. ``describe``
    returns a session's line of CLIENT LIST, which ACL LOG stores with a refusal.
    """

    def __init__(
        self,
        access: AccessControl,
        logins: LoginDelays,
        times: TurnClock,
        describe: Callable[[Session], bytes],
    ) -> None:
        self.logins = logins
        self._access = access
        self._times = times
        self._describe = describe

    # --- logging in -----------------------------------------------------------------------------

    def log_in(self, session: Session, user: User, *, authenticated: bool) -> None:
        """Set the user of a session. ``authenticated`` is True if the client has proved its identity, or need not.

        Otherwise the session may run commands only while `AccessControl.open`.
        """
        may_run_commands = authenticated or self._access.open
        session.log_in(user, authenticated=authenticated, may_run_commands=may_run_commands)

    def set_initial_user(self, session: Session) -> None:
        """Set the user of a new or reset session: ``default``, or the superuser if it is embedded."""
        if session.client.kind == "embedded":
            self.log_in(session, SUPERUSER, authenticated=True)
        else:
            self.log_in(session, self._access.default, authenticated=self._access.open)

    def authenticate(self, session: Session, name: bytes, password: bytes) -> bool:
        """Log a session in, and return whether the credentials are correct. Records wrong ones in ACL LOG.

        The session's current request is AUTH or HELLO.
        """
        user = self._access.user_with(name, password)
        if user is None:
            self._record_refusal(session, AUTH, session.call.arguments.bytes(0), user=name)
            return False
        self.log_in(session, user, authenticated=True)
        return True

    # --- the check before a command -------------------------------------------------------------

    def check(
        self, session: Session, row: Command, arguments: Arguments, *, context: str = ""
    ) -> None:
        """Check that the session's user may run a command. ``context`` is the context of a refusal in ACL LOG,
        by default ``toplevel`` or, within a transaction, ``multi``.

        Raises `CommandError` (NOPERM) if the user may not run it, and records the refusal in ACL LOG.
        """
        found = denial(session.user, row, arguments)
        if found is not None:
            self._record_refusal(session, found.kind, found.object, context=context)
            raise CommandError(f"NOPERM {sentence(session.user, found)}")

    def check_queued(self, session: Session, row: Command, arguments: Arguments) -> None:
        """Check, as `check` does, a command that was permitted when it was queued."""
        found = denial(session.user, row, arguments)
        if found is not None:
            self._record_refusal(session, found.kind, found.object, context="multi")
            raise CommandError(NO_LONGER.format(reason=REASONS[found.kind]))

    def _record_refusal(
        self,
        session: Session,
        kind: str,
        about: bytes,
        *,
        user: bytes | None = None,
        context: str = "",
    ) -> None:
        """Add an entry to ACL LOG: ``kind`` is one of `log.KINDS`, ``about`` the command, key or channel that was
        refused, ``user`` by default the session's."""
        self._access.log.add(
            kind,
            context=context or ("toplevel" if session.transaction.queue is None else "multi"),
            about=about,
            user=session.user.name if user is None else user,
            client=self._describe(session),
            now_ms=self._times.now(),
        )
