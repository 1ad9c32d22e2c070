"""OBJECT: the encoding that Redis would use for a value, and its idle time.

Rule 1. The encoding follows from the current value and Redis's default limits. In Redis it also depends on
        former values: a set that shrinks stays a hashtable. Of this, only one case is reproduced: strings that
        APPEND or SETRANGE changed are raw as long as `Keyspace.grown` remembers them.
Rule 2. embstr is one allocation of 64 bytes. In Redis 8.2, it holds the string, the key and the expiry.

Source: Redis's command pages, object.c and the ``*-max-*`` settings of redis.conf.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from headwater.commands.call import Call
from headwater.commands.help import write_lines
from headwater.engine.accounts.weights import LISTPACK_FRAME, element_bytes
from headwater.engine.keyspace.database import Value
from headwater.engine.keyspace.keyspace import EMBEDDED_BYTES
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import parse_integer

OBJECT_HELP = (
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Show the encoding that Redis would use for the value.",
    "FREQ <key>",
    "    Show how often a key is used: an error, because it is not counted.",
    "IDLETIME <key>",
    "    Show the seconds since a key was last used.",
    "REFCOUNT <key>",
    "    Show how many keys share the value: one.",
    "HELP",
    "    Print this help.",
)

_KEY_BYTES, _EXPIRY_BYTES = 3, 8
_LIST_BYTES = 8192
_INTSET_MEMBERS = 512
_SET_MEMBERS = 128
_HASH_FIELDS = 512
_SHORT_BYTES = 64

_NO_LFU = (
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
    "when switching between policies at runtime LRU and LFU data will take some time to adjust."
)


def encoding(call: Call, key: bytes, value: Value) -> bytes:
    """Return the name of the encoding that Redis would use for the value of ``key``."""
    if isinstance(value, StoredStream):
        return b"stream"
    if isinstance(value, bytes):
        if call.keyspace.grown.get(id(value)) is value:
            return b"raw"
        if parse_integer(value) is not None:
            return b"int"
        shared = _KEY_BYTES + len(key) + (_EXPIRY_BYTES if key in call.db.expiries else 0)
        return b"embstr" if shared + len(value) <= EMBEDDED_BYTES else b"raw"
    if isinstance(value, deque):
        fits = len(value) <= _LIST_BYTES and (
            sum(map(element_bytes, value)) + LISTPACK_FRAME <= _LIST_BYTES
        )
        return b"listpack" if fits else b"quicklist"
    if isinstance(value, dict):
        fits = len(value) <= _HASH_FIELDS and _short([*value, *value.values()])
        return b"listpack" if fits else b"hashtable"
    if len(value) <= _INTSET_MEMBERS and all(parse_integer(one) is not None for one in value):
        return b"intset"
    return b"listpack" if len(value) <= _SET_MEMBERS and _short(value) else b"hashtable"


def _short(texts: Iterable[bytes]) -> bool:
    return all(len(text) <= _SHORT_BYTES for text in texts)


def _object(call: Call) -> tuple[bytes, Value | None]:
    """Return the key and its value. If the key does not exist, write nil as the reply."""
    key = call.arguments.bytes(2)
    value = call.db.lookup(key, call.now_ms)
    if value is None:
        call.keyspace.misses += 1  # no event, as in Redis
        call.reply.nil()
    else:
        call.keyspace.hits += 1
    return key, value


def object_encoding(call: Call) -> None:
    """OBJECT ENCODING key → the name of an encoding, nil if the key does not exist."""
    key, value = _object(call)
    if value is not None:
        call.reply.bulk(encoding(call, key, value))


def object_refcount(call: Call) -> None:
    """OBJECT REFCOUNT key → 1, because keys do not share values; nil if the key does not exist."""
    _, value = _object(call)
    if value is not None:
        call.reply.integer(1)


def object_idletime(call: Call) -> None:
    """OBJECT IDLETIME key → seconds since the key was last used, or since the store was opened; nil if the key
    does not exist."""
    key, value = _object(call)
    if value is not None:
        used_ms = call.db.used_ms(key) or call.keyspace.opened_ms
        call.reply.integer(max(0, call.now_ms - used_ms) // 1000)


def object_freq(call: Call) -> None:
    """OBJECT FREQ key → an error, because the use of keys is not counted; nil if the key does not exist."""
    _, value = _object(call)
    if value is not None:
        raise CommandError(_NO_LFU)


def object_help(call: Call) -> None:
    """OBJECT HELP → the subcommands, for people."""
    write_lines(call, OBJECT_HELP)
