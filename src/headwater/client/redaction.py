"""How an address is shown in log lines, errors and plans: without what may be a secret."""

from __future__ import annotations


def redacted(url: str) -> str:
    """``url`` without its user part and its query, whatever its scheme.

    >>> redacted("redis://ops:hunter2@example.org:6379/0?password=x")
    'redis://***@example.org:6379/0?***'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # Shown, so that a missing scheme is noticed, unless it can hold a password.
        return "***" if "@" in url or "?" in url else url
    rest, question, _query = rest.partition("?")
    # A password may hold "/", so everything before the last "@" is taken for the user part.
    _user, at, place = rest.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{place}{'?***' if question else ''}"
