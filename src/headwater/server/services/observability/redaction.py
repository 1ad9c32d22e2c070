"""Removes secrets from requests: MONITOR and SLOWLOG show no passwords.

Precedent: Redis replaces the arguments of AUTH, those after AUTH in HELLO, those of ACL SETUSER, DELUSER
and GETUSER, and the values of secret settings with ``(redacted)``.
"""

from __future__ import annotations

from headwater.config.config import SETTINGS
from headwater.config.fixed import FIXED
from headwater.config.inert import ALIASES, INERT

HIDDEN = b"(redacted)"


_WHOLLY_HIDDEN = {b"AUTH": 1, b"ACL|SETUSER": 2, b"ACL|DELUSER": 2, b"ACL|GETUSER": 2}
"""Command → index of the first argument that is hidden, with all arguments after it."""


def shown_values(name: bytes, values: list[bytes]) -> list[bytes]:
    """Return the arguments of the command ``name`` (``CONFIG|SET``), with `HIDDEN` for secrets.
    ``values`` are all arguments or the first ones.

    >>> shown_values(b"AUTH", [b"auth", b"bob", b"secret"])
    [b'auth', b'(redacted)', b'(redacted)']
    """
    first = _WHOLLY_HIDDEN.get(name)
    if first is not None:
        return [*values[:first], *(HIDDEN for _ in values[first:])]
    if name == b"HELLO":
        _hide_hello(values)
    elif name == b"CONFIG|SET":
        for index in range(2, len(values) - 1, 2):
            if _is_secret(values[index].lower()):
                values[index + 1] = HIDDEN
    return values


def _hide_hello(values: list[bytes]) -> None:
    """Hide the two arguments after AUTH, at any position where an option is allowed."""
    index = 2
    while index < len(values):
        option = values[index].upper()
        if option == b"AUTH":
            for secret in range(index + 1, min(index + 3, len(values))):
                values[secret] = HIDDEN
            index += 3
        else:
            index += 2 if option == b"SETNAME" else 1


def _is_secret(setting: bytes) -> bool:
    name = setting.decode("utf-8", "surrogateescape")
    name = ALIASES.get(name, name)
    declared = SETTINGS.get(name) or FIXED.get(name) or INERT.get(name)
    return declared.secret if declared is not None else name == "user"  # an ACL line of redis.conf
