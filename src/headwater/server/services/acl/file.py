"""Users in a file: a line each, as ACL LIST shows them.

    user alice on #30c952… ~orders:* resetchannels -@all +@stream

Rule 1. A file is read whole or not at all, and every mistake in it is told, not only the first.
Rule 2. A file is replaced whole: after any crash the old one or the new one is there. It can be read
        by its owner only, unless it was there with other rights.
Rule 3. Errors name file and line and never show what may be a password.

Source: Redis, acl.c, ACLLoadFromFile, ACLSaveToFile.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwater.server.replacement import replace_file
from headwater.server.services.acl.rules import (
    UNKNOWN,
    RuleError,
    UnmatchedParenthesis,
    apply_one,
    has_spaces,
    merge_selectors,
    shown,
)
from headwater.server.session.user import User

_UNCHANGED = (
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
)


class FileError(Exception):
    """The file cannot be read or says what no user is; the text is what ACL LOAD answers."""


def read(path: Path, *, all_channels: bool) -> dict[bytes, User]:
    """The users that a file defines; ``all_channels`` is what a new one may. Raises `FileError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"Error loading ACLs, opening file '{path}': {error.strerror}") from None
    return parse(data, str(path), all_channels=all_channels)


def write(path: Path, users: Iterable[User]) -> None:
    """Replace the file by one that defines ``users``. Raises `OSError`."""
    replace_file(path, b"".join(user.line() + b"\n" for user in users))


def parse(data: bytes, name: str, *, all_channels: bool) -> dict[bytes, User]:
    """The users that the lines of ``data`` define; errors call it ``name``. Raises `FileError`.

    >>> list(parse(b"user alice on nopass ~* +@all\\n", "users.acl", all_channels=False))
    [b'alice']
    """
    users: dict[bytes, User] = {}
    errors = ""
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip(b" \t\r\n")
        if line:
            errors += _line(users, line.split(b" "), f"{name}:{number}", all_channels=all_channels)
    if errors:
        raise FileError(errors + _UNCHANGED)
    return users


def _line(users: dict[bytes, User], words: list[bytes], at: str, *, all_channels: bool) -> str:
    """Add the user of one line; what is wrong with it, a sentence each, or nothing."""
    if words[0] != b"user" or len(words) < 2:
        return f"{at} should start with user keyword followed by the username. "
    user = User(words[1], all_channels=all_channels)
    if has_spaces(user.name):
        return f"'{at}: username '{shown(user.name)}' contains invalid characters. "
    if user.name in users:
        number = at.rpartition(":")[2]
        return f"WARNING: Duplicate user '{shown(user.name)}' found on line {number}. "
    users[user.name] = user
    try:
        rules = merge_selectors(words[2:])
    except UnmatchedParenthesis:
        return f"{at}: Unmatched parenthesis in selector definition. "
    errors, told = "", False
    for word in rules:
        word = word.strip(b"\t\r\n")
        try:
            apply_one(user, word, all_channels=all_channels)
        except RuleError as error:
            if error.reason == UNKNOWN:
                errors += f"{at}: Error in applying operation '{shown(word)}': {error.reason}. "
            elif not told:
                errors += f"{at}: {error.reason}. "
                told = True
    user.update_unrestricted()
    return errors
