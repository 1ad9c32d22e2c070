"""The classes of keyspace events, one bit each (``notify-keyspace-events``).

A command says ``call.notify(STREAM, b"xadd", key)`` after its mutator; who wants to hear of it is
the server's business. Source: redis.io, Redis keyspace notifications.
"""

from __future__ import annotations

from headwater.engine.database import NEW_KEYS

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
"""As the setting spells them."""

ALL = GENERIC | STRING | LIST | SET | HASH | SORTED_SET | EXPIRED | EVICTED | STREAM | MODULE
"""``A``: everything but misses, new keys and what is put over something else."""
