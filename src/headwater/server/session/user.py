"""A user: passwords, and selectors that say which commands, keys and channels it may use.

Rule 1. A request is allowed when one selector alone allows all of it: command, keys and channels.
        The first selector is the root; the others stand in parentheses in its description.
Rule 2. A description is complete: the words that `headwater.server.services.acl.rules` reads make the same
        user of a fresh one. It holds hashes, never a password.
Rule 3. `User.unrestricted` is worked out when a user changes, so that who may do everything costs
        one attribute a command; which commands the others may run is a set, not a walk over rules.

Source: Redis, acl.c; redis.io/docs, ACL.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from headwater.commands.globs import matches
from headwater.commands.table import BY_FULL_NAME
from headwater.resp.inline import quote

READ = 1
WRITE = 2
"""What a key pattern permits; what a command does with a key is told by its key's flags."""

DEFAULT = b"default"


class KeyPattern:
    """A pattern of keys and what may be done with those that fit it (`READ` and `WRITE`)."""

    __slots__ = ("_literal", "_open", "_plain", "pattern", "permissions")

    def __init__(self, pattern: bytes, permissions: int) -> None:
        self.pattern = pattern
        self.permissions = permissions
        self._open = pattern[-1:] == b"*"
        self._literal = pattern[:-1] if self._open else pattern
        self._plain = not any(byte in b"*?[\\" for byte in self._literal)

    def fits(self, key: bytes) -> bool:
        """Whether ``key`` is one of them; ``orders:*``, which is what most write, costs no walk. The
        empty key fits the empty pattern only, as in Redis, where a star takes nothing of nothing."""
        if not key:
            return not self.pattern
        if self._plain:
            return key.startswith(self._literal) if self._open else key == self._literal
        return matches(self.pattern, key)

    def describe(self) -> bytes:
        """``~orders:*``, ``%R~orders:*`` or ``%W~orders:*``."""
        sign = {READ: b"%R~", WRITE: b"%W~"}.get(self.permissions, b"~")
        return sign + self.pattern


def channel_fits(channels: Collection[bytes], channel: bytes, *, pattern: bool) -> bool:
    """Whether a channel is among ``channels``, which may be patterns; a pattern that is subscribed to
    must stand there as it is."""
    if pattern or not channel:
        return channel in channels
    return any(matches(allowed, channel) for allowed in channels)


class Selector:
    """One set of permissions.

    ``all_commands`` is the whole of them, those included that a later version brings; ``future``
    says only whether the description begins with ``+@all``, which a later ``-get`` does not change.
    """

    def __init__(self, *, all_channels: bool) -> None:
        self.all_commands = False
        self.future = False
        self.allowed: set[str] = set()
        """Full names of commands and subcommands."""
        self.first_arguments: dict[str, list[bytes]] = {}
        """Of commands that are allowed only with one of these, in lower case, as first argument."""
        self.command_rules: list[str] = []
        """What the description says behind ``+@all`` or ``-@all``."""
        self.all_keys = False
        self.patterns: dict[bytes, KeyPattern] = {}
        self.all_channels = all_channels
        self.channels: dict[bytes, None] = {}

    @property
    def unrestricted(self) -> bool:
        """Whether nothing needs to be asked."""
        return self.all_commands and self.all_keys and self.all_channels

    def copy(self) -> Selector:
        """The same permissions, which can be changed without changing these."""
        made = Selector(all_channels=self.all_channels)
        made.all_commands, made.future = self.all_commands, self.future
        made.allowed = set(self.allowed)
        made.first_arguments = {name: list(words) for name, words in self.first_arguments.items()}
        made.command_rules = list(self.command_rules)
        made.all_keys = self.all_keys
        made.patterns = dict(self.patterns)
        made.channels = dict(self.channels)
        return made

    def describe_commands(self) -> bytes:
        """``-@all +@stream -xgroup|destroy``."""
        first = "+@all" if self.future else "-@all"
        return " ".join([first, *self.command_rules]).encode("utf-8", "surrogateescape")

    def describe_keys(self) -> bytes:
        """``~orders:* %R~audit``."""
        if self.all_keys:
            return b"~*"
        return b" ".join(pattern.describe() for pattern in self.patterns.values())

    def describe_channels(self) -> bytes:
        """``&news:*``."""
        return b"&*" if self.all_channels else b" ".join(b"&" + word for word in self.channels)

    def describe(self) -> bytes:
        """The words that make this selector of a fresh one."""
        words = [self.describe_keys()]
        if not self.all_channels:
            words.append(b"resetchannels")
        words += [self.describe_channels(), self.describe_commands()]
        return b" ".join(word for word in words if word)


def _quoted(description: bytes) -> bytes:
    """A selector's words as they stand in parentheses: split as a command line is, so a pattern with
    quotes in it, or one that would close the parenthesis, is quoted."""
    words = []
    for word in description.split(b" "):
        quoted = quote(word)
        words.append(b'"%b"' % word if quoted == word and word.endswith(b")") else quoted)
    return b" ".join(words)


def hash_of(password: bytes) -> bytes:
    """What is kept of a password: its SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(password).hexdigest().encode()


class User:
    """A user; a fresh one is off, has no password and may do nothing.

    >>> user = User(b"alice", all_channels=False)
    >>> user.describe()
    b'off sanitize-payload resetchannels -@all'
    """

    def __init__(self, name: bytes, *, all_channels: bool) -> None:
        self.name = name
        self.enabled = False
        self.nopass = False
        self.sanitize_payload = True
        """Accepted and shown; what RESTORE is given is always checked here."""
        self.passwords: dict[bytes, None] = {}
        """Hashes, in the order in which they were given."""
        self.selectors = [Selector(all_channels=all_channels)]
        self.unrestricted = False

    @classmethod
    def superuser(cls, name: bytes) -> User:
        """A user that is on, needs no password and may do everything."""
        made = cls(name, all_channels=True)
        made.enabled = made.nopass = True
        root = made.root
        root.all_commands = root.future = root.all_keys = True
        root.allowed = set(BY_FULL_NAME)
        made.settle()
        return made

    @property
    def root(self) -> Selector:
        """The selector that stands outside of parentheses."""
        return self.selectors[0]

    def settle(self) -> None:
        """Work out what depends on the rest; called when all changes are made (rule 3)."""
        self.unrestricted = any(selector.unrestricted for selector in self.selectors)

    def assign(self, other: User) -> None:
        """Be as ``other`` is, but for the name; connections of this user see it at once."""
        self.enabled, self.nopass = other.enabled, other.nopass
        self.sanitize_payload = other.sanitize_payload
        self.passwords = dict(other.passwords)
        self.selectors = [selector.copy() for selector in other.selectors]
        self.settle()

    def accepts(self, password: bytes) -> bool:
        """Whether this is one of the user's passwords, in a time that does not tell how much of it
        is right or which one it is."""
        if not self.enabled:
            return False
        given, found = hash_of(password), self.nopass
        for wanted in self.passwords:
            found |= hmac.compare_digest(wanted, given)
        return found

    def flags(self) -> list[bytes]:
        """``on`` or ``off``, ``nopass``, what is said of RESTORE's payloads."""
        words = [b"on" if self.enabled else b"off"]
        if self.nopass:
            words.append(b"nopass")
        words.append(b"sanitize-payload" if self.sanitize_payload else b"skip-sanitize-payload")
        return words

    def describe(self) -> bytes:
        """The words that make this user of a fresh one."""
        words = [*self.flags(), *(b"#" + password for password in self.passwords)]
        words.append(self.root.describe())
        words += [b"(" + _quoted(selector.describe()) + b")" for selector in self.selectors[1:]]
        return b" ".join(words)

    def line(self) -> bytes:
        """The user as a line of an ACL file, as ACL LIST shows it."""
        return b"user %b %b" % (self.name, self.describe())
