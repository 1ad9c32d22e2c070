"""Applies the rules of ACL SETUSER to a user, word by word.

    on off nopass resetpass >password <password #hash !hash       the user itself
    reset clearselectors sanitize-payload skip-sanitize-payload
    ( … )                                                         an additional selector
    ~keys %R~keys %W~keys allkeys resetkeys                       the root selector,
    &channels allchannels resetchannels                           or the one in parentheses
    +command +command|subcommand +command|argument -… +@category -@category
    allcommands nocommands

Rule 1. Words are applied one by one in the given order; the caller applies all of them to a copy.
Rule 2. A category is expanded when it is applied: a later ``-get`` removes one command from it.
Rule 3. Rules may name commands that only other servers have (`headwater.commands.table.foreign`), so that
        the ACL files of those servers can be loaded.
Rule 4. An error repeats the word, as in Redis, unless the word may contain a password.

Source: Redis, acl.c, ACLSetUser and ACLSetSelector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headwater.commands.table import CATEGORIES_OF
from headwater.errors import ProtocolError
from headwater.resp.inline import split
from headwater.server.session.user import READ, WRITE, KeyPattern, Selector, User, hash_of

CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
    "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous",
    "connection", "transaction", "scripting",
)  # fmt: skip
"""All categories of Redis, in Redis's order. Those of types that Headwater does not have are empty."""

_SUBCOMMANDS: dict[str, set[str]] = {}
for _name in CATEGORIES_OF:
    _container, _bar, _ = _name.partition("|")
    if _bar:
        _SUBCOMMANDS.setdefault(_container, set()).add(_name)

UNKNOWN = "Unknown command or category name in ACL"
SYNTAX = "Syntax error"
AFTER_ALL_KEYS = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any "
    "effect. Try 'resetkeys' to start with an empty list of patterns"
)
AFTER_ALL_CHANNELS = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have "
    "any effect. Try 'resetchannels' to start with an empty list of channels"
)
NO_SUCH_PASSWORD = "The password you are trying to remove from the user does not exist"  # noqa: S105 - a text
BAD_HASH = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
NO_ARGUMENT_OF_SUBCOMMANDS = "Allowing first-arg of a subcommand is not supported"

_SPACES = frozenset(b" \t\n\v\f\r\0")
_HEXADECIMAL = frozenset(b"0123456789abcdef")


class RuleError(Exception):
    """An invalid rule. ``reason`` is Redis's text; ``word`` is the rule as an error may show it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.word = ""


class UnmatchedParenthesis(Exception):
    """A selector without closing parenthesis. ``start`` is the word that opens it."""

    def __init__(self, start: bytes) -> None:
        super().__init__(shown(start))
        self.start = start


def shown(word: bytes) -> str:
    """Return a word as an error may repeat it: without any text that is or may be a password (rule 4).

    >>> shown(b"+xadd"), shown(b"<secret"), shown(b"(~a >secret)")
    ('+xadd', '<(redacted)', '((redacted))')
    """
    if word[:1] == b"(" and any(part[:1] in b"><#!" for part in word[1:].split() if part):
        return "((redacted))"
    if word[:1] in {b">", b"<", b"#", b"!"}:
        return word[:1].decode() + "(redacted)"
    return word.decode("utf-8", "surrogateescape")


def has_spaces(text: bytes) -> bool:
    """Return whether ``text`` contains white space or a NUL, as names, patterns and arguments must not."""
    return not _SPACES.isdisjoint(text)


def merge_selectors(words: Sequence[bytes]) -> list[bytes]:
    """Join the words of each selector that consists of several: ``(+get`` and ``~a)``.

    >>> merge_selectors([b"on", b"(+get", b"~a)"])
    [b'on', b'(+get ~a)']

    Raises `UnmatchedParenthesis`.
    """
    merged: list[bytes] = []
    parts: list[bytes] = []
    for word in words:
        if parts:
            parts.append(word)
            if word[-1:] == b")":
                merged.append(b" ".join(parts))
                parts = []
        elif word[:1] == b"(" and word[-1:] != b")":
            parts = [word]
        else:
            merged.append(word)
    if parts:
        raise UnmatchedParenthesis(parts[0])
    return merged


def apply(user: User, words: Iterable[bytes], *, all_channels: bool) -> None:
    """Apply merged words to ``user``, up to the first invalid one. Raises `RuleError` for that word."""
    for word in words:
        try:
            apply_one(user, word, all_channels=all_channels)
        except RuleError as error:
            error.word = shown(word)
            raise
    user.update_unrestricted()


def apply_one(user: User, word: bytes, *, all_channels: bool) -> None:
    """Apply a word. With ``all_channels``, a new selector permits all channels (``acl-pubsub-default``).

    Raises `RuleError`.
    """
    if not word:
        return
    simple = _SIMPLE.get(word.lower())
    if simple is not None:
        simple(user)
    elif word[:1] in {b">", b"#"}:
        user.passwords[_hash(word)] = None
        user.nopass = False
    elif word[:1] in {b"<", b"!"}:
        hashed = _hash(word)
        if hashed not in user.passwords:
            raise RuleError(NO_SUCH_PASSWORD)
        del user.passwords[hashed]
    elif word[:1] == b"(" and word[-1:] == b")":
        user.selectors.append(_selector(word[1:-1], all_channels=all_channels))
    elif word.lower() == b"reset":
        user.assign(User(user.name, all_channels=all_channels))
    else:
        apply_to_selector(user.root, word)


def _hash(word: bytes) -> bytes:
    """Return the hash that ``>password``, ``<password``, ``#hash`` or ``!hash`` stands for."""
    if word[:1] in {b">", b"<"}:
        return hash_of(word[1:])
    hashed = word[1:]
    if len(hashed) != 64 or not _HEXADECIMAL.issuperset(hashed):
        raise RuleError(BAD_HASH)
    return hashed


def _selector(text: bytes, *, all_channels: bool) -> Selector:
    made = Selector(all_channels=all_channels)
    try:
        words = split(text)
    except ProtocolError:  # unbalanced quotes: Redis then finds no words
        words = []
    for word in words:
        apply_to_selector(made, word)
    return made


# --- rules about the user itself ----------------------------------------------------------------


def _enable(user: User, *, enabled: bool) -> None:
    user.enabled = enabled


def _clear_passwords(user: User, *, nopass: bool) -> None:
    user.nopass = nopass
    user.passwords.clear()


def _sanitize(user: User, *, sanitize: bool) -> None:
    user.sanitize_payload = sanitize


def _clear_selectors(user: User) -> None:
    del user.selectors[1:]


_SIMPLE: dict[bytes, Callable[[User], None]] = {
    b"on": partial(_enable, enabled=True),
    b"off": partial(_enable, enabled=False),
    b"nopass": partial(_clear_passwords, nopass=True),
    b"resetpass": partial(_clear_passwords, nopass=False),
    b"sanitize-payload": partial(_sanitize, sanitize=True),
    b"skip-sanitize-payload": partial(_sanitize, sanitize=False),
    b"clearselectors": _clear_selectors,
}


# --- rules about a selector ---------------------------------------------------------------------


def apply_to_selector(selector: Selector, word: bytes) -> None:
    """Apply a word to a selector. Raises `RuleError`."""
    whole = _WHOLE.get(word.lower())
    sign = word[:1]
    if whole is not None:
        whole(selector)
    elif sign in {b"~", b"%"}:
        _add_keys(selector, word)
    elif sign == b"&":
        if selector.all_channels:
            raise RuleError(AFTER_ALL_CHANNELS)
        if has_spaces(word[1:]):
            raise RuleError(SYNTAX)
        selector.channels[word[1:]] = None
    elif sign in {b"+", b"-"}:
        name = word[1:].lower().decode("utf-8", "surrogateescape")
        if name.startswith("@"):
            _change_category(selector, name, allow=sign == b"+")
        elif sign == b"+" and "|" in name:
            _allow_part(selector, name)
        else:
            _change_command(selector, name, allow=sign == b"+")
    else:
        raise RuleError(SYNTAX)


def _all_keys(selector: Selector, *, allow: bool) -> None:
    selector.all_keys = allow
    selector.patterns.clear()


def _all_channels(selector: Selector, *, allow: bool) -> None:
    selector.all_channels = allow
    selector.channels.clear()


def _all_commands(selector: Selector, *, allow: bool) -> None:
    selector.all_commands = selector.future = allow
    selector.allowed = set(CATEGORIES_OF) if allow else set()
    selector.command_rules.clear()
    selector.first_arguments.clear()


_WHOLE: dict[bytes, Callable[[Selector], None]] = {
    b"allkeys": partial(_all_keys, allow=True),
    b"~*": partial(_all_keys, allow=True),
    b"resetkeys": partial(_all_keys, allow=False),
    b"allchannels": partial(_all_channels, allow=True),
    b"&*": partial(_all_channels, allow=True),
    b"resetchannels": partial(_all_channels, allow=False),
    b"allcommands": partial(_all_commands, allow=True),
    b"+@all": partial(_all_commands, allow=True),
    b"nocommands": partial(_all_commands, allow=False),
    b"-@all": partial(_all_commands, allow=False),
}


def _add_keys(selector: Selector, word: bytes) -> None:
    """Add a pattern given as ``~pattern``, ``%R~pattern``, ``%W~pattern`` or ``%RW~pattern``."""
    if selector.all_keys:
        raise RuleError(AFTER_ALL_KEYS)
    permissions, pattern = READ | WRITE, word[1:]
    if word[:1] == b"%":
        letters, _, pattern = word[1:].partition(b"~")
        permissions = _permissions(letters)
    if has_spaces(pattern):
        raise RuleError(SYNTAX)
    known = selector.patterns.get(pattern)
    if known is not None:
        permissions |= known.permissions
    selector.patterns[pattern] = KeyPattern(pattern, permissions)


def _permissions(letters: bytes) -> int:
    """Return the permissions for ``R``, ``W`` or both, each once and in any order."""
    wanted = {b"R": READ, b"W": WRITE, b"RW": READ | WRITE, b"WR": READ | WRITE}
    found = wanted.get(letters.upper())
    if found is None:
        raise RuleError(SYNTAX)
    return found


def _find(name: str) -> str:
    """Check the full name of a command or subcommand. Raises `RuleError`."""
    if name not in CATEGORIES_OF:
        raise RuleError(UNKNOWN)
    return name


def _change(selector: Selector, name: str, *, allow: bool) -> None:
    """Permit or forbid a command with all its subcommands."""
    names = {name} | _SUBCOMMANDS.get(name, set())
    selector.first_arguments.pop(name, None)
    if allow:
        selector.allowed |= names
    else:
        selector.allowed -= names
        selector.all_commands = False


def _remember(selector: Selector, name: str, *, allow: bool) -> None:
    """Append a rule to the description, and remove the rules that it overrides."""
    rules = selector.command_rules
    rules.pop(name, None)  # the new rule comes last
    if "|" not in name:  # a part of a command has no parts
        for each in [rule for rule in rules if rule.startswith(f"{name}|")]:
            del rules[each]
    rules[name] = allow


def _change_command(selector: Selector, name: str, *, allow: bool) -> None:
    _change(selector, _find(name), allow=allow)
    _remember(selector, name, allow=allow)


def _change_category(selector: Selector, name: str, *, allow: bool) -> None:
    category = name[1:]
    if category not in CATEGORIES:
        raise RuleError(UNKNOWN)
    _remember(selector, name, allow=allow)
    for each, categories in CATEGORIES_OF.items():
        if category in categories:
            _change(selector, each, allow=allow)


def _allow_part(selector: Selector, name: str) -> None:
    """Apply ``+config|get``, or ``+select|0``: the command with that first argument only."""
    container, _, part = name.rpartition("|")
    _find(container)
    if "|" in container:
        raise RuleError(NO_ARGUMENT_OF_SUBCOMMANDS)
    if not part:
        raise RuleError(SYNTAX)
    if container in _SUBCOMMANDS:
        _change(selector, _find(name), allow=True)
    else:
        word = part.encode("utf-8", "surrogateescape")
        # White space would end the word, or the line, in a file. Redis 8.2.3 then fails at ACL LIST.
        if has_spaces(word):
            raise RuleError(SYNTAX)
        selector.first_arguments.setdefault(container, {})[word] = None
    _remember(selector, name, allow=True)
