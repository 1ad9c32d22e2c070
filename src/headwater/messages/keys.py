"""Names of the keys that Headwater stores for a stream, and the field names that it reserves.

Rule 1. A key for a stream has the stream's hash slot, so one command or script can touch both.
Rule 2. A stream name with a hash tag is not wrapped in another tag, because its own tag decides the slot.
"""

from __future__ import annotations

from functools import lru_cache

Pairs = list[tuple[bytes, bytes]]
"""The fields of an entry: names and values, in order."""

RESERVED = ":hw:"
"""Part of the names of Headwater's keys for a stream (ADR 6), except dead letters. Name patterns skip them."""

RESERVED_PREFIX = "hw."
"""Prefix of the field names that Headwater reserves. Such fields describe an entry and are not part of
its message."""

RESERVED_NAMES = "the names traceparent, tracestate and those that begin with 'hw.' are reserved"
"""The rule of `is_reserved`, for errors."""

TRACE_FIELDS = frozenset({"traceparent", "tracestate"})
"""Field names of the W3C Trace Context. They are added to a message's fields and are not part of the message."""

_RESERVED_PREFIX = RESERVED_PREFIX.encode()
_TRACE_FIELDS = frozenset(name.encode() for name in TRACE_FIELDS)

EXPIRES_FIELD = b"hw.expires"
"""The field with the ``expires=`` of an entry: the milliseconds after its id within which a handler must start."""

LATE_FIELD = b"hw.late"
"""The field of a scheduled message that was published late, with the delay in milliseconds."""

PARKED_CONSUMER = "hw.parked"
"""The consumer that owns delayed entries, on servers without XSETTLE."""

SIGN_CONSUMER = "hw.sign"
"""A consumer that owns no entries. Workers create it in their group. If it is missing later, the group may have
been destroyed and created again."""


def is_reserved(field: str | bytes) -> bool:
    """Return whether a field is reserved and so not part of the message.

    >>> is_reserved("hw.error"), is_reserved(b"traceparent"), is_reserved("total")
    (True, True, False)
    """
    if isinstance(field, bytes):
        return field.startswith(_RESERVED_PREFIX) or field in _TRACE_FIELDS
    return field.startswith(RESERVED_PREFIX) or field in TRACE_FIELDS


def related_key(stream: str, suffix: str) -> str:
    """Return the key of ``stream`` with this suffix, in the stream's hash slot.

    A hash tag is the text between the first ``{`` and the next ``}``, if it is not empty. Source: the
    Redis Cluster specification, "Hash tags".

    >>> related_key("orders", ":x"), related_key("{eu}.orders", ":x"), related_key("a{}b", ":x")
    ('{orders}:x', '{eu}.orders:x', '{a{}b}:x')
    """
    return f"{stream if hash_tag(stream) else '{' + stream + '}'}{suffix}"


def hash_tag(key: str) -> str:
    """Return the part of ``key`` that determines its hash slot, or ``""`` if the whole key does."""
    opened = key.find("{")
    if opened < 0:
        return ""
    closed = key.find("}", opened + 1)
    return key[opened + 1 : closed] if closed > 0 else ""


def dead_letter_stream(stream: str) -> str:
    """Return the name of the default dead-letter stream of a stream: ``{orders}.dead``."""
    return related_key(stream, ".dead")


def group_settings_key(stream: str, group: str) -> str:
    """Return the key of the settings, a hash, that all workers of a group must share: ``{orders}:hw:group:billing``."""
    return related_key(stream, f":hw:group:{group}")


def reader_key(stream: str, group: str, consumer: str) -> str:
    """Return the key of the name lease that lets one query at a time read as a consumer:
    ``{orders}:hw:reader:billing:spark``."""
    return related_key(stream, f":hw:reader:{group}:{consumer}")


def group_reader_key(stream: str, group: str) -> str:
    """Return the key of the name lease that lets one process at a time read for an ordered group:
    ``{orders}:hw:reader:billing``."""
    return related_key(stream, f":hw:reader:{group}")


def dedupe_key(stream: str, key: str) -> str:
    """Return the key of the string with the id of the entry that was added with a dedupe name, on servers
    without idempotent producers: ``{orders}:hw:dedupe:order-17``."""
    return related_key(stream, f":hw:dedupe:{key}")


def delays_key(stream: str, group: str) -> str:
    """Return the key of the sorted set of delayed entries' ids by due time: ``{orders}:hw:delays:billing``."""
    return related_key(stream, f":hw:delays:{group}")


def poison_key(stream: str, group: str) -> str:
    """Return the key of the hash entry id → poison record (`headwater.groups`): ``{orders}:hw:poison:billing``."""
    return related_key(stream, f":hw:poison:{group}")


def heard_key(stream: str, group: str) -> str:
    """Return the key of the hash of deliveries whose silent owner was heard of again: ``{orders}:hw:heard:billing``."""
    return related_key(stream, f":hw:heard:{group}")


def group_backup_key(stream: str, group: str) -> str:
    """Return the key of the group backup, a hash from which workers create the group again:
    ``{orders}:hw:noted:billing``."""
    return related_key(stream, f":hw:noted:{group}")


def actions_key(stream: str) -> str:
    """Return the name of the stream that records the actions of operators on a stream: ``{orders}:hw:actions``."""
    return related_key(stream, ":hw:actions")


def early_claims_key(stream: str, group: str) -> str:
    """Return the key of the hash entry id → number of claims while it still ran: ``{orders}:hw:early:billing``."""
    return related_key(stream, f":hw:early:{group}")


def held_key(stream: str, group: str) -> str:
    """Return the key of the string with the entries of an ordered group that wait: ``{orders}:hw:held:billing``."""
    return related_key(stream, f":hw:held:{group}")


def transfers_key(stream: str, group: str) -> str:
    """Return the key of the hash of workers with a large transfer under way: ``{orders}:hw:transfers:billing``."""
    return related_key(stream, f":hw:transfers:{group}")


def hung_key(stream: str, group: str) -> str:
    """Return the key of the hash of workers whose handlers do not end: ``{orders}:hw:hung:billing``."""
    return related_key(stream, f":hw:hung:{group}")


def expired_key(stream: str, group: str) -> str:
    """Return the key of the hash that counts a group's recently expired entries: ``{orders}:hw:expired:billing``."""
    return related_key(stream, f":hw:expired:{group}")


def limit_key(stream: str, group: str) -> str:
    """Return the key of the hash of a limit's keys that have entries in line: ``{orders}:hw:limit:billing``. The names
    of the limits' other keys begin with it."""
    return related_key(stream, f":hw:limit:{group}")


def limited_key(stream: str, group: str) -> str:
    """Return the key of the hash of the entries that wait for a limit: ``{orders}:hw:limited:billing``."""
    return related_key(stream, f":hw:limited:{group}")


@lru_cache(maxsize=1024)
def later_key(stream: str) -> str:
    """Return the name of the stream of messages that are scheduled for ``stream``: ``{orders}:hw:later``."""
    return related_key(stream, ":hw:later")


def ticks_key(stream: str) -> str:
    """Return the key of the hash with the rule by which ticks are added to ``stream``: ``{shop.sweep}:hw:ticks``."""
    return related_key(stream, ":hw:ticks")


def queries_key(stream: str) -> str:
    """Return the key of the hash Spark query → position up to which it has read the stream: ``{orders}:hw:queries``."""
    return related_key(stream, ":hw:queries")


def sink_key(stream: str, query: str) -> str:
    """Return the key of the hash that records a Spark query's writes to ``stream``: ``{orders}:hw:sink:<query>``."""
    return related_key(stream, f":hw:sink:{query}")


def stage_key(stream: str, query: str, uuid: str) -> str:
    """Return the name of the stream in which a Spark task stages rows before they are published:
    ``{orders}:hw:stage:<query>:<uuid>``."""
    return related_key(stream, f":hw:stage:{query}:{uuid}")
