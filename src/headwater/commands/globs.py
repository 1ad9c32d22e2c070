"""Patterns as Redis writes them: ``*``, ``?``, ``[abc]``, ``[^a-z]``, ``\\`` before what is meant.

Matching goes back to the last ``*`` only, which is enough: a star before it that took more would
leave less for the rest. So the work is at most pattern times text and needs no recursion
(CVE-2022-36021, CVE-2024-31228), and a bound on the steps ends what would still take too long.
"""

from __future__ import annotations

from headwater.errors import CommandError

MAX_STEPS = 1_000_000
"""Comparisons for one text; a pattern of 1,000 bytes over a key of 1,000 needs no more."""

_STAR = 0x2A
_ANY = 0x3F
_OPEN = 0x5B
_CLOSE = 0x5D
_NOT = 0x5E
_DASH = 0x2D
_BACKSLASH = 0x5C


def matches(pattern: bytes, text: bytes) -> bool:
    """Whether the whole of ``text`` fits ``pattern``; for names without case, lower both first.

    Raises `CommandError` when it takes more than `MAX_STEPS` comparisons to know.

    >>> matches(b"order*[^0-9]?", b"orders:x1"), matches(b"\\\\*", b"a")
    (True, False)
    """
    at, position = 0, 0
    star, resume = -1, 0
    steps = 0
    while position < len(text):
        steps += 1
        if steps > MAX_STEPS:
            raise CommandError("ERR the pattern takes too long to match; use fewer stars")
        if at < len(pattern) and pattern[at] == _STAR:
            star, resume = at, position
            at += 1
            continue
        end = _one(pattern, at, text[position]) if at < len(pattern) else 0
        if end:
            at, position = end, position + 1
        elif star >= 0:
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    while at < len(pattern) and pattern[at] == _STAR:
        at += 1
    return at == len(pattern)


def _one(pattern: bytes, at: int, byte: int) -> int:
    """The position behind the element at ``at`` if it fits ``byte``, else 0."""
    element = pattern[at]
    if element == _ANY:
        return at + 1
    if element == _OPEN:
        return _class(pattern, at + 1, byte)
    if element == _BACKSLASH and at + 1 < len(pattern):
        at += 1
        element = pattern[at]
    return at + 1 if element == byte else 0


def _class(pattern: bytes, at: int, byte: int) -> int:
    """`_one` for what stands behind ``[``; a class that is not closed ends with the pattern."""
    negated = at < len(pattern) and pattern[at] == _NOT
    if negated:
        at += 1
    found = False
    while at < len(pattern) and pattern[at] != _CLOSE:
        if pattern[at] == _BACKSLASH and at + 1 < len(pattern):
            at += 1
            found = found or pattern[at] == byte
        elif at + 2 < len(pattern) and pattern[at + 1] == _DASH:
            low, high = sorted((pattern[at], pattern[at + 2]))
            found = found or low <= byte <= high
            at += 2
        else:
            found = found or pattern[at] == byte
        at += 1
    return min(at + 1, len(pattern)) if found != negated else 0
