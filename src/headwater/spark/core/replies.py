"""Normalises redis-py's replies, which are dicts or lists for the same command."""

from __future__ import annotations

from typing import Any


def as_text(value: str | bytes) -> str:
    """Return a name or a word as a str. Bytes that are not UTF-8 are replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_dict(reply: Any) -> dict[str, Any]:
    """Return a map reply as a dict.

    >>> as_dict([b"length", 2, b"groups", 0])
    {'length': 2, 'groups': 0}
    """
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {as_text(name): value for name, value in pairs}
