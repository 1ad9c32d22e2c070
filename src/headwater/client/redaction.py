"""Removes possible secrets from addresses that log lines, errors and plans show."""

from __future__ import annotations


def redacted(url: str) -> str:
    """Return ``url`` without its user part and its query, for any scheme.

    >>> redacted("redis://ops:hunter2@example.org:6379/0?password=x")
    'redis://***@example.org:6379/0?***'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # The text is shown, so that a missing scheme is visible, unless it may contain a password.
        return "***" if "@" in url or "?" in url else url
    rest, question, _query = rest.partition("?")
    # A password may contain "/", so everything before the last "@" counts as the user part.
    _user, at, place = rest.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{place}{'?***' if question else ''}"
