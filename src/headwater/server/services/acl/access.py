"""All users of a node: their definition, their authentication, and access without authentication.

    requirepass ─▶ default ─▶ `user` lines of the configuration, or the users of `aclfile`

Rule 1. The user ``default`` always exists; a new connection is this user. While it is on and needs no
        password (`AccessControl.open`), clients need not authenticate.
Rule 2. A session refers to its `User` object, and a change of a user changes that object. So the next
        request of an open connection has the new permissions.
Rule 3. A change of a user is applied completely or not at all.

`headwater.server.services.acl.changes` applies changes to open connections.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from headwater.config.access import AccessConfig
from headwater.errors import CommandError, ConfigError
from headwater.server.services.acl import file
from headwater.server.services.acl.log import AccessLog
from headwater.server.services.acl.rules import (
    RuleError,
    UnmatchedParenthesis,
    apply,
    has_spaces,
    merge_selectors,
    shown,
)
from headwater.server.session.user import DEFAULT, User

log = logging.getLogger("headwater.server")

SUPERUSER = User.superuser(b"(superuser)")
"""The user of embedded connections. This user is not listed, and rules cannot change it. Redis shows this name for
a connection without a user."""

BOTH_KINDS = (
    "users are defined in the configuration ('user') and in a file ('aclfile'), which leads to mistakes "
    "and is not allowed; define them in one place only"
)


class AccessControl:
    """The users of a node, and the log of refusals.

    Raises `ConfigError` if the users of the configuration, or of its ``aclfile``, are invalid.

    >>> from headwater.config.access import AccessConfig
    >>> access = AccessControl(AccessConfig(requirepass="secret"))
    >>> access.open, access.user_with(b"default", b"secret") is access.default
    (False, True)
    """

    def __init__(self, config: AccessConfig) -> None:
        self.aclfile = config.aclfile
        self.default = User.superuser(DEFAULT)
        self.users: dict[bytes, User] = {DEFAULT: self.default}
        self.users_bytes = 0
        """Memory of all users, in bytes."""
        self.log = AccessLog(config.acllog_max_len)
        self.all_channels = False
        self.configure(config)
        self.set_default_password(config.requirepass)
        if config.aclfile and config.users:
            raise ConfigError(BOTH_KINDS)
        defined = set[bytes]()
        for words in config.users:
            self._define([word.encode("utf-8", "surrogateescape") for word in words], defined)
        if config.aclfile:
            self._read_at_start()

    @property
    def open(self) -> bool:
        """True if a new connection may run commands."""
        return self.default.nopass and self.default.enabled

    def configure(self, config: AccessConfig) -> None:
        """Apply settings that CONFIG SET can change. A shorter log takes effect with its next entry."""
        self.all_channels = config.acl_pubsub_default == "allchannels"
        self.log.max_length = config.acllog_max_len

    def set_default_password(self, password: str) -> None:
        """Set the only password of the user ``default`` (``requirepass``); empty means none."""
        _set_password(self.default, password)

    def memory_bytes(self) -> int:
        """Return the memory of the users and of the log."""
        return self.users_bytes + self.log.memory_bytes()

    def sorted(self) -> list[User]:
        """Return all users, sorted by name."""
        return [self.users[name] for name in sorted(self.users)]

    def lines(self, requirepass: str) -> list[str]:
        """Return the ``user`` lines of CONFIG REWRITE; an empty list if ``default`` is the only user
        and ``requirepass`` describes it completely."""
        plain = User.superuser(DEFAULT)
        _set_password(plain, requirepass)
        if len(self.users) == 1 and self.default.describe(saved=True) == plain.describe(saved=True):
            return []
        return [user.line(saved=True).decode("utf-8", "surrogateescape") for user in self.sorted()]

    # --- authenticating -------------------------------------------------------------------------

    def user_with(self, name: bytes, password: bytes) -> User | None:
        """Return the user with these credentials, or None."""
        user = self.users.get(name)
        return user if user is not None and user.accepts(password) else None

    # --- changing users -------------------------------------------------------------------------

    def changed(self, name: bytes, words: Sequence[bytes]) -> User:
        """Return the user that ``ACL SETUSER name word …`` would create or change, without applying it.

        Raises `CommandError` with Redis's text.
        """
        if has_spaces(name):
            raise CommandError("ERR Usernames can't contain spaces or null characters")
        made = User(name, all_channels=self.all_channels)
        if name in self.users:
            made.assign(self.users[name].copy())
        try:
            apply(made, merge_selectors(words), all_channels=self.all_channels)
        except UnmatchedParenthesis as error:
            raise CommandError(
                f"ERR Unmatched parenthesis in acl selector starting at '{shown(error.start)}'."
            ) from None
        except RuleError as error:
            raise CommandError(
                f"ERR Error in ACL SETUSER modifier '{error.word}': {error.reason}"
            ) from None
        return made

    def put(self, made: User) -> User:
        """Set the user with the name of ``made`` to ``made``, which the caller must not use again. Return the
        object to which sessions refer."""
        user = self.users.setdefault(made.name, made)
        if user is not made:
            user.assign(made)
        self.users_bytes -= user.booked
        user.booked = user.memory_bytes()
        self.users_bytes += user.booked
        return user

    def remove(self, user: User) -> None:
        """Remove a user. Its sessions still refer to it."""
        del self.users[user.name]
        self.users_bytes -= user.booked

    def replace_all(self, users: dict[bytes, User]) -> list[User]:
        """Set all users. If ``default`` is missing, it gets its initial permissions. Return the
        users that were removed."""
        users = {DEFAULT: User.superuser(DEFAULT), **users}
        gone = [user for name, user in self.users.items() if name not in users]
        for user in gone:
            self.remove(user)
        for user in users.values():
            self.put(user)
        return gone

    def read_file(self) -> dict[bytes, User]:
        """Read the users of ``aclfile``. Raises `headwater.server.services.acl.file.FileError`."""
        return file.read(Path(self.aclfile), all_channels=self.all_channels)

    def save(self) -> bool:
        """Write the current users to ``aclfile``. On failure log it and return False."""
        try:
            file.write(Path(self.aclfile), self.sorted())
        except OSError as error:
            log.warning("the users cannot be saved in %s: %s", self.aclfile, error.strerror)
            return False
        return True

    def _read_at_start(self) -> None:
        try:
            self.replace_all(self.read_file())
        except file.FileError as error:
            raise ConfigError(f"aclfile: {error}") from None

    def _define(self, words: list[bytes], defined: set[bytes]) -> None:
        """Apply a ``user`` line of the configuration, and add its name to ``defined``. Raises `ConfigError`."""
        name, *rules = words
        at = f"user {shown(name)!r}"
        if has_spaces(name):
            raise ConfigError(f"{at}: a user's name must not contain spaces; correct the line")
        if name in defined:
            raise ConfigError(
                f"{at}: Duplicate user: it is defined twice; combine the lines into one"
            )
        defined.add(name)
        made = User(name, all_channels=self.all_channels)
        try:
            apply(made, merge_selectors(rules), all_channels=self.all_channels)
        except UnmatchedParenthesis as error:
            raise ConfigError(
                f"{at}: the selector that {shown(error.start)!r} opens is not closed; add ')'"
            ) from None
        except RuleError as error:
            raise ConfigError(
                f"{at}: {error.word!r}: {error.reason}; correct the line or remove it"
            ) from None
        if not made.enabled:
            log.warning("the user %s is disabled: there is no 'on' in its definition", shown(name))
        self.put(made)


def _set_password(user: User, password: str) -> None:
    word = b">" + password.encode("utf-8", "surrogateescape") if password else b"nopass"
    apply(user, [b"resetpass", word], all_channels=False)
