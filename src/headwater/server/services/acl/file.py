"""Reads and writes users in a file: one per line, as in ACL LIST.

    user alice on #30c952… ~orders:* resetchannels -@all +@stream

Rule 1. A file is loaded completely or not at all, and the errors of all its lines are reported,
        not only the first.
Rule 2. A file is replaced as a whole: a crash leaves the old one or the new one. The new file gets the old one's
        permissions; without an old file, only the owner can read the new one.
Rule 3. Errors name file and line, and never show a text that may be a password.

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
    """The file cannot be read or is invalid. The message is the reply of ACL LOAD."""


def read(path: Path, *, all_channels: bool) -> dict[bytes, User]:
    """Read a file. With ``all_channels``, new users may access all channels. Raises `FileError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"Error loading ACLs, opening file '{path}': {error.strerror}") from None
    return parse(data, str(path), all_channels=all_channels)


def write(path: Path, users: Iterable[User]) -> None:
    """Replace the content of the file with ``users``. Raises `OSError`."""
    replace_file(path, b"".join(user.line(saved=True) + b"\n" for user in users))


def parse(data: bytes, name: str, *, all_channels: bool) -> dict[bytes, User]:
    """Parse the users in the lines of ``data``. Errors refer to it as ``name``. Raises `FileError`.

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
    """Add the user of a line. Return its errors, one sentence each, or an empty text."""
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
