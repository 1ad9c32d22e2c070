"""Dead letters: records of entries that could not be handled, with the error and the origin.

A record has the entry's fields in order, except its expiry, and then fields about the failure, whose names begin
with ``hw.``. A replay makes the entry pending again or, if it is gone from its stream, adds its own fields again.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import NamedTuple

from headwater.common.moments import iso_time
from headwater.common.names import bytes_of, text_of
from headwater.messages.keys import EXPIRES_FIELD, LATE_FIELD, RESERVED_PREFIX, Pairs

MAX_ERROR_CHARACTERS = 2_000
"""Number of characters at which an error message is cut. A longer message may quote the whole input."""

TRACE_FRAMES = 8
"""Maximum number of frames of a traceback that are stored: the last ones, where the error occurred. The
first frames are always Headwater's."""

_NAMES = frozenset({"stream", "group", "consumer"})
"""Fields of a record that hold names. The bytes of a name are kept unchanged."""


class DeadLetter(NamedTuple):
    """One record of a dead-letter stream: an entry that could not be handled, with the error.

    Functions of `App.on_dead` get it, and `AppTest.dead` returns it. Fields that the record lacks are empty.
    Source: docs/guide/worker.md, dead letters.
    """

    id: str
    """The record's id in the dead-letter stream."""
    stream: str
    """The stream of the entry."""
    group: str
    """The consumer group that could not handle the entry."""
    entry_id: str
    """The entry's id in its stream."""
    consumer: str
    """The last consumer that owned the entry."""
    deliveries: int
    """Number of deliveries of the entry to the group; 0 if the record lacks it."""
    error: str
    """``type: message`` of the last error, at most 2,000 characters."""
    trace: str
    """The last 8 frames of the error's traceback, as Python prints them; empty without a traceback."""
    at: str
    """Time when the entry became a dead letter: ISO 8601 in UTC, such as ``2018-05-17T15:04:58.055Z``."""
    fields: Pairs
    """The entry's fields, unchanged and in order, without those that begin with ``hw.``: pairs of bytes."""


REMOTE_TRACE = "_headwater_trace"
"""Name of the attribute with the traceback, as text, of an error that was raised in another process."""


def error_text(error: BaseException) -> str:
    """Return ``type: message``, cut at 2,000 characters. If the error cannot be printed, the text says so."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
    try:
        words = str(error)
    except BaseException as problem:  # any class may define __str__
        words = f"(its __str__ raised {type(problem).__name__})"
    return f"{name}: {words}"[:MAX_ERROR_CHARACTERS]


def trace_text(error: BaseException) -> str:
    """Return the last frames of an error's traceback, as Python prints them; empty without a traceback."""
    remote: str = getattr(error, REMOTE_TRACE, "")
    if remote:
        return remote
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_FRAMES:]
    return "".join(traceback.format_list(frames)).rstrip()


def dead_letter_fields(
    original: Sequence[bytes],
    *,
    stream: str,
    group: str,
    entry_id: str,
    consumer: str,
    deliveries: int,
    error: str,
    trace: str,
    at_ms: int,
) -> Pairs:
    """Return the record's fields. ``original`` has the entry's fields as ``[field, value, …]``. A record does not
    expire, so the entry's ``expires=`` is left out."""
    pairs = [
        pair
        for pair in zip(original[::2], original[1::2], strict=False)
        if pair[0] not in (EXPIRES_FIELD, LATE_FIELD)
    ]
    about = {
        "stream": stream,
        "group": group,
        "id": entry_id,
        "consumer": consumer,
        "deliveries": str(deliveries),
        "error": error,
        "trace": trace,
        "at": iso_time(at_ms),
    }
    prefix = RESERVED_PREFIX.encode()
    for name, value in about.items():
        text = bytes_of(value) if name in _NAMES else value.encode("utf-8", "backslashreplace")
        pairs.append((prefix + name.encode(), text))
    return pairs


def parse_dead_letter(record_id: str, flat: Sequence[bytes]) -> DeadLetter:
    """Parse an entry of a dead-letter stream. Missing fields are empty, so that a record written by
    another program can still be shown and dropped."""
    prefix = RESERVED_PREFIX.encode()
    about: dict[str, str] = {}
    fields: Pairs = []
    for name, value in zip(flat[::2], flat[1::2], strict=False):
        if name.startswith(prefix):
            word = name[len(prefix) :].decode("utf-8", "replace")
            about[word] = text_of(value) if word in _NAMES else value.decode("utf-8", "replace")
        else:
            fields.append((name, value))
    deliveries = about.get("deliveries", "")
    return DeadLetter(
        id=record_id,
        stream=about.get("stream", ""),
        group=about.get("group", ""),
        entry_id=about.get("id", ""),
        consumer=about.get("consumer", ""),
        # Any client can write a dead letter. Python refuses to convert thousands of digits.
        deliveries=int(deliveries) if deliveries.isdecimal() and len(deliveries) < 20 else 0,
        error=about.get("error", ""),
        trace=about.get("trace", ""),
        at=about.get("at", ""),
        fields=fields,
    )
