"""A key that must hold a certain type, and what every change of such a key brings with it."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from headwater.commands.call import WRONGTYPE, Call
from headwater.commands.keys import clear_expired
from headwater.engine.database import Value
from headwater.engine.events import GENERIC
from headwater.engine.facts import HEADROOM
from headwater.errors import CommandError

T = TypeVar("T", bytes, deque[bytes], set[bytes], dict[bytes, bytes])

TEXT_BYTES = 4
"""What a text takes in a fact beside its own bytes."""


def reading(call: Call, key: bytes, kind: type[T]) -> T | None:
    """The value at ``key`` for a command that only reads; WRONGTYPE if it is none of ``kind``."""
    return _checked(call.read(key), kind)


def writing(call: Call, key: bytes, kind: type[T]) -> T | None:
    """The value at ``key`` for a command that may write; WRONGTYPE if it is none of ``kind``."""
    return _checked(call.lookup(key), kind)


def _checked(value: Value | None, kind: type[T]) -> T | None:
    if value is None or isinstance(value, kind):
        return value
    raise CommandError(WRONGTYPE)


def prepare(call: Call, key: bytes, texts: list[bytes]) -> None:
    """Ask for room for a fact of ``key`` and ``texts``, and clear the key if its time has come."""
    size = 0
    for text in texts:
        size += len(text) + TEXT_BYTES
    _prepare(call, key, size)


def prepare_text(call: Call, key: bytes, text: bytes) -> None:
    """The same for one text."""
    _prepare(call, key, len(text) + TEXT_BYTES)


def _prepare(call: Call, key: bytes, size: int) -> None:
    call.admit(3 * HEADROOM + 3 * len(key) + size)
    if call.db.expiries:  # without them no key is over
        clear_expired(call, key)


def changed(call: Call, key: bytes, kind: int, event: bytes, changes: int) -> None:
    """``key`` was changed; it may be gone now, because nothing was left in it."""
    call.modified(key, changes)
    call.notify(kind, event, key)
    if key in call.db.values:
        call.db.use(key, call.now_ms)
    else:
        call.notify(GENERIC, b"del", key)
