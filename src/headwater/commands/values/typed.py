"""Helpers that look up a key which must hold a certain type, and prepare and record a change of it."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from headwater.commands.call import WRONGTYPE, Call
from headwater.commands.keys import clear_expired
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import Value
from headwater.engine.keyspace.events import GENERIC
from headwater.errors import CommandError

T = TypeVar("T", bytes, deque[bytes], set[bytes], dict[bytes, bytes])

TEXT_BYTES = 4
"""Number of bytes that a text takes in a fact in addition to its own."""


def reading(call: Call, key: bytes, kind: type[T]) -> T | None:
    """Return the value at ``key``, or None, for a command that only reads. Raises WRONGTYPE for other types."""
    return _checked(call.read(key), kind)


def writing(call: Call, key: bytes, kind: type[T]) -> T | None:
    """Return the value at ``key``, or None, for a command that may write. Raises WRONGTYPE for other types."""
    return _checked(call.lookup(key), kind)


def _checked(value: Value | None, kind: type[T]) -> T | None:
    if value is None or isinstance(value, kind):
        return value
    raise CommandError(WRONGTYPE)


def prepare(call: Call, key: bytes, texts: list[bytes]) -> None:
    """Admit a fact of ``key`` and ``texts``, and delete the key if it has expired."""
    size = 0
    for text in texts:
        size += len(text) + TEXT_BYTES
    _prepare(call, key, size)


def prepare_text(call: Call, key: bytes, text: bytes) -> None:
    """Admit a fact of ``key`` and one text, and delete the key if it has expired."""
    _prepare(call, key, len(text) + TEXT_BYTES)


def _prepare(call: Call, key: bytes, size: int) -> None:
    call.admit(3 * HEADROOM + 3 * len(key) + size)
    if call.db.expiries:  # otherwise no key can have expired
        clear_expired(call, key)


def changed(call: Call, key: bytes, kind: int, event: bytes, changes: int) -> None:
    """Count ``changes`` of ``key`` and record the event; also ``del`` if the value is empty and was deleted."""
    call.modified(key, changes)
    call.notify(kind, event, key)
    value = call.db.values.get(key)
    if value is None:
        call.notify(GENERIC, b"del", key)
    else:
        call.db.use(key, value, call.now_ms)
