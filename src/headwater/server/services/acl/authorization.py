"""What sessions may do: logging in, the check before a command, and the log of what was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.errors import CommandError
from headwater.server.services.acl.access import SUPERUSER, AccessControl
from headwater.server.services.acl.log import AUTH
from headwater.server.services.acl.login_delays import LoginDelays
from headwater.server.services.acl.permissions import NO_LONGER, REASONS, denial, sentence

if TYPE_CHECKING:
    from headwater.commands.table import Command
    from headwater.resp.arguments import Arguments
    from headwater.server.services.turn_clock import TurnClock
    from headwater.server.session.session import Session
    from headwater.server.session.user import User


class Authorization:
    """The users of ``access`` as sessions meet them. ``describe`` is a session's line of CLIENT LIST,
    which a refusal keeps."""

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
        """Let a session be ``user``; ``authenticated`` when it has shown so, or needed not to."""
        let_in = authenticated or self._access.open
        session.log_in(user, authenticated=authenticated, let_in=let_in)

    def log_in_at_first(self, session: Session) -> None:
        """Let a session be who a new connection is: `default`; if embedded, the superuser."""
        if session.client.kind == "embedded":
            self.log_in(session, SUPERUSER, authenticated=True)
        else:
            self.log_in(session, self._access.default, authenticated=self._access.open)

    def authenticate(self, session: Session, name: bytes, password: bytes) -> bool:
        """Let a session be that user; False, and an entry in the log, if the credentials are wrong."""
        user = self._access.user_with(name, password)
        if user is None:
            self.refused(session, AUTH, session.call.arguments.bytes(0), user=name)
            return False
        self.log_in(session, user, authenticated=True)
        return True

    # --- the check before a command -------------------------------------------------------------

    def check(
        self, session: Session, row: Command, arguments: Arguments, *, context: str = ""
    ) -> None:
        """Refuse what the session's user may not do, and remember that it was tried; ``context`` is
        what ACL LOG says beside ``toplevel`` and ``multi``, which are seen from the session.

        Raises `CommandError` (NOPERM).
        """
        found = denial(session.user, row, arguments)
        if found is not None:
            self.refused(session, found.kind, found.object, context=context)
            raise CommandError(f"NOPERM {sentence(session.user, found)}")

    def check_queued(self, session: Session, row: Command, arguments: Arguments) -> None:
        """As `check`, for a command that was queued when it was still allowed."""
        found = denial(session.user, row, arguments)
        if found is not None:
            self.refused(session, found.kind, found.object, context="multi")
            raise CommandError(NO_LONGER.format(reason=REASONS[found.kind]))

    def refused(
        self,
        session: Session,
        kind: str,
        about: bytes,
        *,
        user: bytes | None = None,
        context: str = "",
    ) -> None:
        """Remember that a session was refused something."""
        self._access.log.add(
            kind,
            context=context or ("toplevel" if session.transaction.queue is None else "multi"),
            about=about,
            user=session.user.name if user is None else user,
            client=self._describe(session),
            now_ms=self._times.now(),
        )
