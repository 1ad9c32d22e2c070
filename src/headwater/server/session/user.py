"""A user: passwords, and selectors that define the permitted commands, keys and channels.

Rule 1. A request is permitted if a single selector permits all of it: command, keys and channels.
        The first selector is the root; a description has the others in parentheses.
Rule 2. A description that is saved is complete: `headwater.server.services.acl.rules` applies it to a new user
        and gets the same user. A description contains hashes, never a password.
Rule 3. `User.unrestricted` is computed when a user changes, so that the check of an unrestricted
        user costs one attribute per command. The commands of other users are a set, so that no
        rules are evaluated.

Source: Redis, acl.c; redis.io/docs, ACL.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from sys import getsizeof

from headwater.commands.globs import matches
from headwater.commands.table import CATEGORIES_OF
from headwater.engine.accounts.memory_account import sampled, text_bytes
from headwater.resp.arguments import Arguments
from headwater.resp.inline import quote

READ = 1
WRITE = 2
"""Permissions of a key pattern. The flags of a command's key determine which of them the command needs."""

DEFAULT = b"default"

_USER_BYTES, _SELECTOR_BYTES, _PATTERN_BYTES = 120, 325, 80
"""Bytes per user, selector and pattern, without their collections."""


class KeyPattern:
    """A pattern of keys, and the permissions for keys that match it (`READ` and `WRITE`)."""

    __slots__ = ("_literal", "_open", "_plain", "pattern", "permissions")

    def __init__(self, pattern: bytes, permissions: int) -> None:
        self.pattern = pattern
        self.permissions = permissions
        self._open = pattern[-1:] == b"*"
        self._literal = pattern[:-1] if self._open else pattern
        self._plain = not any(byte in b"*?[\\" for byte in self._literal)

    def fits(self, key: bytes) -> bool:
        """Return whether ``key`` matches. Patterns such as ``orders:*``, the usual kind, need no
        glob matching. The empty key matches only the empty pattern: as in Redis, a star does not
        match it."""
        if not key:
            return not self.pattern
        if self._plain:
            return key.startswith(self._literal) if self._open else key == self._literal
        return matches(self.pattern, key)

    def memory_bytes(self) -> int:
        """Return the memory of the pattern."""
        literal = text_bytes(self._literal) if self._open else 0
        return _PATTERN_BYTES + text_bytes(self.pattern) + literal

    def describe(self, *, saved: bool = False) -> bytes:
        """Format the pattern: ``~orders:*``, ``%R~orders:*`` or ``%W~orders:*``.

        With ``saved``, the text is a rule for exactly this pattern. Otherwise it is the text that Redis shows: ``~*``
        for the pattern ``*``, which as a rule means all keys and permits no rule for another pattern after it."""
        sign = {READ: b"%R~", WRITE: b"%W~"}.get(self.permissions, b"~")
        if saved and sign + self.pattern == b"~*":
            sign = b"%RW~"
        return sign + self.pattern


def channel_fits(channels: Collection[bytes], channel: bytes, *, pattern: bool) -> bool:
    """Return whether ``channels`` permits a channel. ``channels`` may contain patterns. If ``pattern``,
    ``channel`` is itself a pattern, which must be in ``channels`` literally."""
    if pattern or not channel:
        return channel in channels
    return any(matches(allowed, channel) for allowed in channels)


class Selector:
    """A set of permissions.

    ``all_commands`` means all commands, including those of later versions. ``future`` is True if the
    description begins with ``+@all``; a later ``-get`` does not change it.
    """

    def __init__(self, *, all_channels: bool) -> None:
        self.all_commands = False
        self.future = False
        self.allowed: set[str] = set()
        """Full names of permitted commands and subcommands."""
        self.first_arguments: dict[str, dict[bytes, None]] = {}
        """Commands that are permitted only with one of these first arguments, in lower case."""
        self.command_rules: dict[str, bool] = {}
        """The description after ``+@all`` or ``-@all``: name of a command or category → True if it is
        permitted."""
        self.all_keys = False
        self.patterns: dict[bytes, KeyPattern] = {}
        self.all_channels = all_channels
        self.channels: dict[bytes, None] = {}

    @property
    def unrestricted(self) -> bool:
        """True if everything is permitted."""
        return self.all_commands and self.all_keys and self.all_channels

    def copy(self) -> Selector:
        """Return a copy that can be changed without changing this one."""
        made = Selector(all_channels=self.all_channels)
        made.all_commands, made.future = self.all_commands, self.future
        made.allowed = set(self.allowed)
        made.first_arguments = {name: dict(words) for name, words in self.first_arguments.items()}
        made.command_rules = dict(self.command_rules)
        made.all_keys = self.all_keys
        made.patterns = dict(self.patterns)
        made.channels = dict(self.channels)
        return made

    def memory_bytes(self) -> int:
        """Return the memory of the selector, without the names in ``allowed``, which the command table holds."""
        size = _SELECTOR_BYTES + getsizeof(self.allowed) + _texts_bytes(self.channels)
        size += getsizeof(self.patterns) + sampled(self.patterns.values(), KeyPattern.memory_bytes)
        size += getsizeof(self.command_rules) + sampled(self.command_rules, getsizeof)
        return size + sampled(self.first_arguments.values(), _texts_bytes)

    def permits(self, name: str, arguments: Arguments) -> bool:
        """Return whether a request may run the command or subcommand ``name``."""
        if self.all_commands or name in self.allowed:
            return True
        words = self.first_arguments.get(name)
        return words is not None and arguments.count > 1 and arguments.bytes(1).lower() in words

    def describe_commands(self) -> bytes:
        """Format the permitted commands: ``-@all +@stream -xgroup|destroy``."""
        first = "+@all" if self.future else "-@all"
        rules = (f"{'+' if allow else '-'}{name}" for name, allow in self.command_rules.items())
        return " ".join([first, *rules]).encode("utf-8", "surrogateescape")

    def describe_keys(self, *, saved: bool = False) -> bytes:
        """Format the permitted keys: ``~orders:* %R~audit``; for ``saved`` see `KeyPattern.describe`."""
        if self.all_keys:
            return b"~*"
        return b" ".join(pattern.describe(saved=saved) for pattern in self.patterns.values())

    def describe_channels(self) -> bytes:
        """Format the permitted channels: ``&news:*``."""
        return b"&*" if self.all_channels else b" ".join(b"&" + word for word in self.channels)

    def describe(self, *, saved: bool = False) -> bytes:
        """Return the rules that create this selector when applied to a new one; ``saved`` as in `User.describe`."""
        words = [self.describe_keys(saved=saved)]
        if not self.all_channels:
            words.append(b"resetchannels")
        words += [self.describe_channels(), self.describe_commands()]
        return b" ".join(word for word in words if word)


def _texts_bytes(texts: Collection[bytes]) -> int:
    """Return the memory of a collection of texts."""
    return getsizeof(texts) + sampled(texts, text_bytes)


def _quoted(description: bytes) -> bytes:
    """Quote a selector's words for use in parentheses. The words are split like a command line, so a word with
    quotes, or one that would close the parenthesis, is quoted. The others are as Redis shows them."""
    words = description.split(b" ")
    for index, word in enumerate(words):
        if b'"' in word or b"'" in word or word.endswith(b")"):
            words[index] = quote(word, always=True)
    return b" ".join(words)


def hash_of(password: bytes) -> bytes:
    """Return the stored form of a password: its SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(password).hexdigest().encode()


class User:
    """A user. A new one is off and has no password and, except for ``all_channels``, no permissions.

    >>> user = User(b"alice", all_channels=False)
    >>> user.describe()
    b'off sanitize-payload resetchannels -@all'
    """

    def __init__(self, name: bytes, *, all_channels: bool) -> None:
        self.name = name
        self.enabled = False
        self.nopass = False
        self.sanitize_payload = True
        """Accepted and shown only: RESTORE always checks its payload."""
        self.passwords: dict[bytes, None] = {}
        """Hashes of the passwords, in the order in which they were added."""
        self.selectors = [Selector(all_channels=all_channels)]
        self.unrestricted = False
        self.booked = 0
        """Memory of this user that is in the account of users, in bytes."""

    @classmethod
    def superuser(cls, name: bytes) -> User:
        """Return a user that is on, needs no password and may do everything."""
        made = cls(name, all_channels=True)
        made.enabled = made.nopass = True
        root = made.root
        root.all_commands = root.future = root.all_keys = True
        root.allowed = set(CATEGORIES_OF)
        made.update_unrestricted()
        return made

    @property
    def root(self) -> Selector:
        """The selector outside parentheses."""
        return self.selectors[0]

    def update_unrestricted(self) -> None:
        """Update `unrestricted`. Call it when all changes are made (rule 3)."""
        self.unrestricted = any(selector.unrestricted for selector in self.selectors)

    def assign(self, other: User) -> None:
        """Take over everything but the name from ``other``, which must not be changed afterwards. Open connections
        of this user are affected immediately."""
        self.enabled, self.nopass = other.enabled, other.nopass
        self.sanitize_payload = other.sanitize_payload
        self.passwords, self.selectors = other.passwords, other.selectors
        self.update_unrestricted()

    def copy(self) -> User:
        """Return a copy that can be changed without changing this one."""
        made = User(self.name, all_channels=False)
        made.assign(self)
        made.passwords = dict(self.passwords)
        made.selectors = [self.root.copy(), *self.selectors[1:]]  # only the root is ever changed
        return made

    def accepts(self, password: bytes) -> bool:
        """Return whether this is one of the user's passwords. The time taken does not reveal which
        password matches or how much of it."""
        if not self.enabled:
            return False
        given, found = hash_of(password), self.nopass
        for wanted in self.passwords:
            found |= hmac.compare_digest(wanted, given)
        return found

    def memory_bytes(self) -> int:
        """Return the memory of the user, an estimate if it has many passwords, selectors or rules."""
        size = _USER_BYTES + text_bytes(self.name) + _texts_bytes(self.passwords)
        return size + sampled(self.selectors, Selector.memory_bytes)

    def flags(self) -> list[bytes]:
        """Return ``on`` or ``off``, ``nopass`` if set, and the flag of RESTORE's payloads."""
        words = [b"on" if self.enabled else b"off"]
        if self.nopass:
            words.append(b"nopass")
        words.append(b"sanitize-payload" if self.sanitize_payload else b"skip-sanitize-payload")
        return words

    def describe(self, *, saved: bool = False) -> bytes:
        """Return the rules that create this user when applied to a new one, as Redis shows them. Only with ``saved``
        is that exact for key patterns that permit everything (`KeyPattern.describe`)."""
        words = [*self.flags(), *(b"#" + password for password in self.passwords)]
        first, *others = (selector.describe(saved=saved) for selector in self.selectors)
        words += [first, *(b"(" + _quoted(rules) + b")" for rules in others)]
        return b" ".join(words)

    def line(self, *, saved: bool = False) -> bytes:
        """Format the user as a line of ACL LIST or, with ``saved``, of a file."""
        return b"user %b %b" % (self.name, self.describe(saved=saved))
