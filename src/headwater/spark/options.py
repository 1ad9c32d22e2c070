"""The options of ``spark.read.format("headwater")``, checked before anything is connected.

Rule 1. An option that is not known is refused, with the nearest one that is: an option that was
        misspelt and ignored would read other data than was asked for.
Rule 2. The url may hold a password, so nothing here prints it: see `redacted`.
Rule 3. No pyspark, no redis: `headwater pipeline` checks its file by these before Spark starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from headwater.client.redaction import redacted
from headwater.commands.globs import matches
from headwater.errors import DeclarationError
from headwater.model import MAX_U64, StreamID

Codec = Literal["fields", "json"]
Mode = Literal["permissive", "failfast", "dropmalformed"]
Start = Literal["earliest", "latest"] | StreamID

OPTIONS: Final = (
    "url",
    "stream",
    "startingId",
    "maxEntriesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "ignoreDeletes",
    "codec",
    "includeMetadata",
    "mode",
)
"""Every option, in the spelling that is printed; Spark compares them without regard to case."""

_SCHEMES: Final = ("redis", "rediss", "unix")
_GLOB: Final = re.compile(r"(?<!\\)[*?\[]")
_ID: Final = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, repr=False)
class SourceOptions:
    """What one source reads and how; the fields are the options of `OPTIONS`.

    Either ``streams`` names the streams or ``pattern`` is a glob that finds them.
    """

    url: str
    streams: tuple[str, ...] = ()
    pattern: str | None = None
    starting: Start = "earliest"
    starting_of: Mapping[str, Start] | None = None
    max_entries_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    ignore_deletes: bool = False
    codec: Codec = "fields"
    include_metadata: bool = False
    mode: Mode = "permissive"

    def __repr__(self) -> str:
        """The url without its password: this object travels in Spark's plans."""
        what = self.pattern if self.pattern is not None else ",".join(self.streams)
        return f"SourceOptions(url={redacted(self.url)!r}, stream={what!r})"

    def asks_for(self, stream: str) -> bool:
        """Whether ``stream`` is one of those named, or one that the pattern finds."""
        if self.pattern is None:
            return stream in self.streams
        return matches(self.pattern.encode(), stream.encode())

    def start_of(self, stream: str) -> Start:
        """Where reading of ``stream`` begins."""
        return (self.starting_of or {}).get(stream, self.starting)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options that Spark, or a pipeline's file, gives as text.

    >>> options = parse_options({"url": "redis://localhost:6379", "stream": "orders"})
    >>> options.streams, options.start_of("orders")
    (('orders',), 'earliest')

    Raises `DeclarationError` naming option, value and remedy.
    """
    known = {name.lower(): name for name in OPTIONS}
    texts: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() not in known:
            raise DeclarationError(f"unknown option {name!r}. {nearest_option(name)}")
        texts[known[name.lower()]] = text
    made: dict[str, Any] = {"url": _url(texts.get("url"))}
    made |= _streams(texts.get("stream"))
    made |= _starting(texts.get("startingId"), made.get("streams"))
    for name, (field, read) in _READERS.items():
        if name in texts:
            made[field] = read(name, texts[name])
    return SourceOptions(**made)


def nearest_option(name: str) -> str:
    """The sentence that helps whoever wrote an option that does not exist."""
    lower = {option.lower(): option for option in OPTIONS}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {lower[near[0]]!r}?"
    return f"The options are {', '.join(OPTIONS)}."


def _url(text: str | None) -> str:
    if not text:
        raise DeclarationError(
            'the option "url" is missing: .option("url", "redis://localhost:6379")'
        )
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme == "headwater":
        raise DeclarationError(
            "url: Spark's executors are other processes, which cannot share an embedded store "
            f"({redacted(text)}). Serve the directory (headwater serve --dir DIRECTORY) and give "
            "redis://127.0.0.1:6379."
        )
    if scheme not in _SCHEMES:
        raise DeclarationError(
            f"url: {redacted(text)!r} begins with none of "
            f"{', '.join(f'{name}://' for name in _SCHEMES)}"
        )
    return text


def _streams(text: str | None) -> dict[str, Any]:
    """``stream`` as names or a pattern. A JSON list holds names as they are, so that a name with a
    comma or a star can be given."""
    if not text or not text.strip():
        raise DeclarationError(
            'the option "stream" is missing: a name ("orders"), a list ("orders,payments" or '
            '["orders", "payments"]), or a pattern ("orders.*")'
        )
    if text.lstrip().startswith("["):
        listed = _json(text)
        if isinstance(listed, list) and listed and all(isinstance(n, str) and n for n in listed):
            return {"streams": tuple(dict.fromkeys(listed))}
    if _GLOB.search(text):
        if "," in text:
            raise DeclarationError(
                f"stream: {text!r} is a pattern with a comma. A pattern stands alone; names that "
                'hold a comma or a star are given as a JSON list: ["a,b", "c*"]'
            )
        return {"pattern": text.strip()}
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise DeclarationError(f"stream: {text!r} names an empty stream between its commas")
    return {"streams": tuple(dict.fromkeys(names))}


def _starting(text: str | None, streams: tuple[str, ...] | None) -> dict[str, Any]:
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        return {"starting": _start(text)}
    each = _json(text)
    if not isinstance(each, dict) or not all(isinstance(value, str) for value in each.values()):
        raise DeclarationError(
            f'startingId: {text!r} is no JSON object of stream to id, like {{"orders": "5-0"}}'
        )
    strangers = sorted(set(each) - set(streams)) if streams is not None else []
    if strangers:
        raise DeclarationError(
            f"startingId names {', '.join(strangers)}, which the option stream does not"
        )
    return {"starting_of": {name: _start(value) for name, value in each.items()}}


def _start(text: str) -> Start:
    word = text.strip()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    found = _ID.fullmatch(word)
    if found is None:
        raise DeclarationError(
            f"startingId: {text!r} is none of earliest, latest, an id (1526569498055-0, the first "
            'entry that is read), or JSON for each stream ({"orders": "latest"})'
        )
    start = StreamID(int(found[1]), int(found[2] or 0))
    if max(start) > MAX_U64:
        raise DeclarationError(f"startingId: each half of {text!r} must fit 64 bits")
    return start


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise DeclarationError(f"{name}: {text!r} is no whole number of at least 1")
    return int(text)


def _flag(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise DeclarationError(f"{name}: {text!r} is neither true nor false")
    return word == "true"


def _word(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            near = get_close_matches(word, words, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise DeclarationError(f"{name}: {text!r} is none of {', '.join(words)}{hint}")
        return word

    return read


_READERS: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "maxEntriesPerTrigger": ("max_entries_per_trigger", _count),
    "minPartitions": ("min_partitions", _count),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "ignoreDeletes": ("ignore_deletes", _flag),
    "codec": ("codec", _word(*get_args(Codec))),
    "includeMetadata": ("include_metadata", _flag),
    "mode": ("mode", _word(*get_args(Mode))),
}
