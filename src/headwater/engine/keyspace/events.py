"""The classes of keyspace events, one bit each (``notify-keyspace-events``).

A command calls ``call.notify(STREAM, b"xadd", key)`` after its mutator; the server sends the event to
subscribers. Source: redis.io, Redis keyspace notifications.
"""

from __future__ import annotations

from headwater.engine.keyspace.database import NEW_KEYS

KEYSPACE = 1
"""``K``: messages on ``__keyspace@<db>__:<key>``."""
KEYEVENT = 2
"""``E``: messages on ``__keyevent@<db>__:<event>``."""
GENERIC = 4
STRING = 8
LIST = 16
SET = 32
HASH = 64
SORTED_SET = 128
EXPIRED = 256
EVICTED = 512
STREAM = 1024
MISSED = 2048
MODULE = 4096
NEW = NEW_KEYS
OVERWRITTEN = 16384
TYPE_CHANGED = 32768

BAD_CLASS = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."

LETTERS: dict[str, int] = {
    "K": KEYSPACE,
    "E": KEYEVENT,
    "g": GENERIC,
    "$": STRING,
    "l": LIST,
    "s": SET,
    "h": HASH,
    "z": SORTED_SET,
    "x": EXPIRED,
    "e": EVICTED,
    "t": STREAM,
    "m": MISSED,
    "d": MODULE,
    "n": NEW,
    "o": OVERWRITTEN,
    "c": TYPE_CHANGED,
}
"""Letter of the setting → class."""

ALL = GENERIC | STRING | LIST | SET | HASH | SORTED_SET | EXPIRED | EVICTED | STREAM | MODULE
"""``A``: everything but misses, new keys, overwritten values and changed types."""


def parse_classes(text: str) -> int:
    """Return the classes that the setting names, as bits. Raises `ValueError` with Redis's text.

    >>> parse_classes("KA") == KEYSPACE | ALL
    True
    """
    bits = 0
    for letter in text:
        if letter == "A":
            bits |= ALL
        elif letter in LETTERS:
            bits |= LETTERS[letter]
        else:
            raise ValueError(BAD_CLASS)
    return bits


def spell_classes(bits: int) -> str:
    """Return the letters of the classes in Redis's order. `parse_classes` of the result returns the same bits.

    >>> spell_classes(parse_classes("KEmt")), spell_classes(parse_classes("nKA"))
    ('tKEm', 'AnK')
    """
    text = "A" if bits & ALL == ALL else ""
    for letter in "g$lshzxetdnocKEm":
        covered = text[:1] == "A" and LETTERS[letter] & ALL
        if bits & LETTERS[letter] and not covered:
            text += letter
    return text
