"""Parsers for the values of options, which Spark passes as strings.

A parser takes the option's name and string. It returns the value, or raises `DeclarationError`, whose message
describes valid values.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from headwater.client import server_url
from headwater.client.redaction import redacted
from headwater.common.model import MAX_ID, MAX_U64, MIN_ID, StreamID, id_before
from headwater.common.moments import length_ms
from headwater.errors import DeclarationError
from headwater.spark.core import timestamp_formats
from headwater.spark.core.patterns import StreamPattern

Start = Literal["earliest", "latest"] | StreamID
"""Beginning of a read: the first entry, the position after the last entry, or an id (included)."""

End = Literal["latest"] | StreamID
"""End of a batch: the last entry, or an id (included)."""

Reader = Callable[[str, str], Any]

SCHEMES: Final = (*server_url.SCHEMES, "headwater")
_GLOB: Final = re.compile(r"(?<!\\)[*?\[]")
_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


_OF_TABLES: Final = {
    "provider",
    "owner",
    "comment",
    "location",
    "path",
    "external",
    "is_managed_location",
}
"""Properties of a catalog table, not options. Spark passes such a table's options again as ``option.NAME``."""


def recognised(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return ``given`` with its names spelled as in ``known``; Spark ignores the case of names. Properties that
    Spark adds when a table is created (``CREATE TABLE … USING headwater``) are left out.

    Raises `DeclarationError`, with the nearest known name, for an unknown name, because a misspelt option must
    not be ignored silently.
    """
    spelling = {name.lower(): name for name in known}
    texts: dict[str, str] = {}
    of_table = "provider" in map(str.lower, given)
    for name, text in given.items():
        if of_table and (name.lower() in _OF_TABLES or name.lower().startswith("option.")):
            continue
        if name.lower() not in spelling:
            raise DeclarationError(
                f"unknown option {name!r}. {nearest_option(name, spelling.values())}"
            )
        texts[spelling[name.lower()]] = text
    return texts


def nearest_option(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown option: the nearest known option or, if none is near, all options."""
    lower = {option.lower(): option for option in known}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {lower[near[0]]!r}?"
    return f"The options are {', '.join(lower.values())}."


def url(name: str, text: str | None) -> str:
    """Parse the url of a server or an embedded store."""
    if not text:
        raise DeclarationError(
            f'the option "{name}" is missing: .option("{name}", "redis://localhost:6379")'
        )
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme not in SCHEMES:
        raise DeclarationError(
            f"{name}: {redacted(text)!r} does not begin with one of "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    return text


def streams(name: str, text: str | None) -> tuple[tuple[str, ...], StreamPattern | None]:
    """Parse names, or a glob. A JSON list holds plain names, which may contain commas and stars.

    >>> streams("stream", "orders, payments"), streams("stream", "orders.*")
    ((('orders', 'payments'), None), ((), StreamPattern(text='orders.*', regular=False)))
    """
    if not text or not text.strip():
        raise DeclarationError(
            f'the option "{name}" is missing: a name ("orders"), a list ("orders,payments" or '
            '["orders", "payments"]), or a pattern ("orders.*")'
        )
    if text.lstrip().startswith("["):
        listed = _json(text)
        if isinstance(listed, list) and listed and all(isinstance(n, str) and n for n in listed):
            return tuple(dict.fromkeys(listed)), None
    if _GLOB.search(text):
        if "," in text:
            raise DeclarationError(
                f"{name}: {text!r} is a pattern with a comma. Give one pattern only, or a regular "
                "expression with the option streamsPattern; names that contain a comma or a star are "
                'given as a JSON list: ["a,b", "c*"]'
            )
        return (), StreamPattern(text.strip())
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise DeclarationError(f"{name}: {text!r} has an empty name before or after a comma")
    return tuple(dict.fromkeys(names)), None


def of_each(
    name: str, text: str, read: Reader, streams: tuple[str, ...]
) -> tuple[Any, dict[str, Any]]:
    """Parse one value for all streams, or a JSON object of stream to value. Return both: one is None or empty."""
    if not text.lstrip().startswith("{"):
        return read(name, text), {}
    each = _json(text)
    if not isinstance(each, dict) or not all(isinstance(v, str | int) for v in each.values()):
        raise DeclarationError(
            f'{name}: {text!r} is not a JSON object of stream to value, like {{"orders": "5-0"}}'
        )
    others = sorted(set(each) - set(streams)) if streams else []
    if others:
        raise DeclarationError(f"{name} names {', '.join(others)}, but the option stream does not")
    return None, {stream: read(name, str(value)) for stream, value in each.items()}


def start(name: str, text: str) -> Start:
    """Parse ``earliest``, ``latest`` or an id."""
    word = text.strip()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    return _id(name, text, "none of earliest, latest, an id (1526569498055-0, the first entry that")


def end(name: str, text: str) -> End:
    """Parse ``latest`` or an id. An id without a sequence number means the last id of its millisecond."""
    word = text.strip()
    if word == "latest":
        return "latest"
    found = _id(name, text, "neither latest nor an id (1526569498055-0, the last entry that")
    return found if "-" in word else StreamID(found.ms, MAX_U64)


def starting_time(name: str, text: str) -> StreamID:
    """Return the first possible id of the moment's millisecond, at which reading begins."""
    return StreamID(_milliseconds(name, text), 0)


def ending_time(name: str, text: str) -> StreamID:
    """Return the last possible id before the moment. The same time can end one read and begin the next."""
    return StreamID(*id_before(_milliseconds(name, text), 0))


def _id(name: str, text: str, expected: str) -> StreamID:
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise DeclarationError(
            f"{name}: {text!r} is {expected} is read), or JSON for each stream "
            '({"orders": "5-0"})'
        )
    id_ = StreamID(int(found[1]), int(found[2] or 0))
    if max(id_) > MAX_U64:
        raise DeclarationError(f"{name}: each half of {text!r} must fit in 64 bits")
    return id_


def _milliseconds(name: str, text: str) -> int:
    word = text.strip()
    if re.fullmatch(r"[0-9]{1,20}", word):
        moment = int(word)
    else:
        try:
            time = dt.datetime.fromisoformat(word)
        except ValueError:
            raise DeclarationError(
                f"{name}: {text!r} is not a time: ISO 8601 (2026-11-21, 2026-11-21T14:30:00Z; UTC if "
                "no zone is given) or milliseconds since 1970"
            ) from None
        aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
        moment = (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if not MIN_ID.ms < moment <= MAX_ID.ms:
        raise DeclarationError(
            f"{name}: {text!r} is not after 1970-01-01T00:00:00Z, or is too late for an entry id"
        )
    return moment


def count(name: str, text: str) -> int:
    """Parse a whole number of at least 1."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise DeclarationError(f"{name}: {text!r} is not a whole number of at least 1")
    return int(text)


def duration_ms(name: str, text: str) -> int:
    """Return the milliseconds of a duration such as ``30s`` or ``5m``. A plain number is in milliseconds."""
    word = text.strip()
    found = length_ms(f"{word}ms" if word.isdecimal() else word)
    if not found:
        raise DeclarationError(
            f"{name}: {text!r} is not a duration like 500ms, 30s, 5m, 2h, or milliseconds"
        )
    return found


def flag(name: str, text: str) -> bool:
    """Parse ``true`` or ``false``."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise DeclarationError(f"{name}: {text!r} is neither true nor false")
    return word == "true"


def name(option: str, text: str) -> str:
    """Parse a name that is not empty."""
    if not text.strip():
        raise DeclarationError(f"{option}: expected a name, got {text!r}")
    return text.strip()


def names(option: str, text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas or form a JSON list."""
    found, pattern = streams(option, text)
    if pattern is not None:
        raise DeclarationError(
            f"{option}: {text!r} is a pattern; expected names, separated by commas"
        )
    return found


def time_formats(option: str, text: str) -> tuple[tuple[str, str], ...]:
    """Parse one format for all timestamps, returned with an empty name, or a JSON object of column to format.

    >>> time_formats("timestampFormat", "ms"), time_formats("timestampFormat", '{"at": "s", "order.at": "ns"}')
    ((('', 'ms'),), (('at', 's'), ('order.at', 'ns')))
    """
    if not text.lstrip().startswith("{"):
        return (("", timestamp_formats.checked(option, text.strip())),)
    each = _json(text)
    if not isinstance(each, dict) or not each or not all(isinstance(v, str) for v in each.values()):
        raise DeclarationError(
            f'{option}: {text!r} is not a JSON object of column to format, like {{"at": "ms"}}'
        )
    return tuple((name, timestamp_formats.checked(option, one)) for name, one in each.items())


def word(*words: str) -> Reader:
    """Return a parser that accepts one of ``words``."""

    def read(name: str, text: str) -> str:
        lower = {one.lower(): one for one in words}
        given = text.strip().lower()
        if given not in lower:
            near = get_close_matches(given, lower, n=1)
            hint = f". Did you mean {lower[near[0]]!r}?" if near else ""
            raise DeclarationError(f"{name}: {text!r} is not one of {', '.join(words)}{hint}")
        return lower[given]

    return read


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
