"""Names: the keys that Headwater keeps beside a stream, and the field names that it keeps to itself.

Rule 1. A key kept beside a stream hashes to the stream's slot, so one step can touch both.
Rule 2. A name that has a hash tag already is not wrapped again: its own tag decides its slot.
"""

from __future__ import annotations

RESERVED_PREFIX = "hw."
"""Field names that begin so are Headwater's own: they describe an entry and are no part of it."""

TRACE_FIELDS = frozenset({"traceparent", "tracestate"})
"""Field names of the W3C Trace Context, carried beside a message."""

PARKED_CONSUMER = "hw.parked"
"""The consumer that holds entries waiting for their retry, on servers without XSETTLE."""

SIGN_CONSUMER = "hw.sign"
"""A consumer that owns nothing: a group without it is another than the one that workers noted."""


def is_reserved(field: str | bytes) -> bool:
    """Whether a field is no part of the message.

    >>> is_reserved("hw.error"), is_reserved(b"traceparent"), is_reserved("total")
    (True, True, False)
    """
    name = field.decode("utf-8", "replace") if isinstance(field, bytes) else field
    return name.startswith(RESERVED_PREFIX) or name in TRACE_FIELDS


def beside(stream: str, suffix: str) -> str:
    """The key named ``suffix`` beside ``stream``, in the same hash slot.

    A tag is what stands between the first ``{`` and the next ``}``, if anything does: the rule of
    the Redis Cluster specification, "Hash tags".

    >>> beside("orders", ":x"), beside("{eu}.orders", ":x"), beside("a{}b", ":x")
    ('{orders}:x', '{eu}.orders:x', '{a{}b}:x')
    """
    return f"{stream if hash_tag(stream) else '{' + stream + '}'}{suffix}"


def hash_tag(key: str) -> str:
    """The part of ``key`` that decides its hash slot, or ``""`` when the whole key does."""
    opened = key.find("{")
    if opened < 0:
        return ""
    closed = key.find("}", opened + 1)
    return key[opened + 1 : closed] if closed > 0 else ""


def dead_letter_stream(stream: str) -> str:
    """Where a stream's dead letters go unless the consumer names another: ``{orders}.dead``."""
    return beside(stream, ".dead")


def group_settings_key(stream: str, group: str) -> str:
    """The hash of what all workers of a group must agree on: ``{orders}:hw:group:billing``."""
    return beside(stream, f":hw:group:{group}")


def reader_key(stream: str, group: str, consumer: str) -> str:
    """The lease of a consumer that one query at a time reads as:
    ``{orders}:hw:reader:billing:spark``."""
    return beside(stream, f":hw:reader:{group}:{consumer}")


def group_reader_key(stream: str, group: str) -> str:
    """Who reads for an ordered group, one process at a time: ``{orders}:hw:reader:billing``."""
    return beside(stream, f":hw:reader:{group}")


def due_key(stream: str, group: str) -> str:
    """The hash id → due time of parked entries that earlier versions wrote:
    ``{orders}:hw:due:billing``. Read while it exists."""
    return beside(stream, f":hw:due:{group}")


def dedupe_key(stream: str, key: str) -> str:
    """The string that holds the id of the entry added with a dedupe key, where the server has no
    idempotent producers: ``{orders}:hw:dedupe:order-17``."""
    return beside(stream, f":hw:dedupe:{key}")


def delays_key(stream: str, group: str) -> str:
    """The sorted set id by due time of parked entries: ``{orders}:hw:delays:billing``."""
    return beside(stream, f":hw:delays:{group}")


def poison_key(stream: str, group: str) -> str:
    """The hash id → what is known of a message whose owners fell silent:
    ``{orders}:hw:poison:billing``."""
    return beside(stream, f":hw:poison:{group}")


def noted_key(stream: str, group: str) -> str:
    """The hash of what workers note of a group, to create it again: ``{orders}:hw:noted:billing``."""
    return beside(stream, f":hw:noted:{group}")


def later_key(stream: str) -> str:
    """The stream of messages that are published to ``stream`` later: ``{orders}:hw:later``."""
    return beside(stream, ":hw:later")


def queries_key(stream: str) -> str:
    """The hash query → how far it has read, of Spark's queries on a stream: ``{orders}:hw:queries``."""
    return beside(stream, ":hw:queries")


def sink_key(stream: str, query: str) -> str:
    """The hash that says what a query of Spark has written to ``stream``: ``{orders}:hw:sink:<query>``."""
    return beside(stream, f":hw:sink:{query}")


def stage_key(stream: str, query: str, uuid: str) -> str:
    """The stream of what a task wrote and nobody sees yet: ``{orders}:hw:stage:<query>:<uuid>``."""
    return beside(stream, f":hw:stage:{query}:{uuid}")
