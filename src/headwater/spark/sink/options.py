"""The options of ``df.write.format("headwater")`` and ``df.writeStream``, checked before any connection
is made. As for reading (core/options.py), unknown options and options without effect raise an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from headwater.client.redaction import redacted
from headwater.common.model import MAX_U64
from headwater.errors import DeclarationError
from headwater.spark.core import option_values as values
from headwater.spark.core.finite import NonFinite
from headwater.spark.core.option_values import Reader

Codec = Literal["fields", "json", "msgpack"]
Delivery = Literal["exactlyOnce", "atLeastOnce"]


@dataclass(frozen=True, repr=False)
class SinkOptions:
    """The parsed options of the sink; the fields are the options of `OPTIONS`.

    ``stream`` is empty if each row names its stream, in the column ``stream_column``.
    ``trim`` contains XADD's arguments that limit the stream. ``transaction`` is (txnAppId, txnVersion) of a
    batch write that takes effect once; None for other writes.
    """

    url: str
    stream: str
    stream_column: str | None = None
    codec: Codec = "fields"
    trim: tuple[str, ...] = ()
    delivery: Delivery = "exactlyOnce"
    non_finite: NonFinite = "refuse"
    write_source_columns: bool = False
    fail_on_data_loss: bool | None = None
    """True: a loss raises an error. False: it is logged. None: as True, but batch writes do not detect it."""
    transaction: tuple[str, int] | None = None
    checkpoint: str = ""
    """The directory of the query's checkpoint, for error messages; empty if it is not known."""

    def __repr__(self) -> str:
        """Show the url without its password: Spark's plans contain this object."""
        return f"SinkOptions(url={redacted(self.url)!r}, stream={self.stream!r})"

    def to(self, stream: str) -> SinkOptions:
        """Return the options with which the rows of one stream are published."""
        return replace(self, stream=stream)


def _stream(name: str, text: str | None) -> str:
    names, _pattern = values.streams(name, text)
    if len(names) != 1:
        raise DeclarationError(
            f"{name}: {text!r} is not one stream, but rows are written to one. A name that contains a "
            'comma or a star is given as a JSON list: ["a,b"]'
        )
    return names[0]


def _maxlen(name: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(r"\s*([~=]?)\s*([0-9]{1,18})\s*", text)
    if found is None:
        raise DeclarationError(
            f"{name}: {text!r} is not a number of entries; 100000 keeps about as many, =100000 exactly"
        )
    return ("MAXLEN", found[1] or "~", str(int(found[2])))


def _minid(name: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(r"\s*([~=]?)\s*([0-9]{1,20})(?:-([0-9]{1,20}))?\s*", text)
    if found is None or max(int(found[2]), int(found[3] or 0)) > MAX_U64:
        raise DeclarationError(
            f"{name}: {text!r} is not an id; 1526569498055-0 removes entries before it when convenient, "
            "=1526569498055-0 at once"
        )
    return ("MINID", found[1] or "~", f"{int(found[2])}-{int(found[3] or 0)}")


def _version(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise DeclarationError(f"{name}: {text!r} is not a whole number of at least 0")
    return int(text)


_READERS: Final[dict[str, tuple[str, Reader]]] = {
    "codec": ("codec", values.word(*get_args(Codec))),
    "maxlen": ("trim", _maxlen),
    "minid": ("trim", _minid),
    "delivery": ("delivery", values.word(*get_args(Delivery))),
    "failOnDataLoss": ("fail_on_data_loss", values.flag),
    "nonFinite": ("non_finite", values.word(*get_args(NonFinite))),
    "writeSourceColumns": ("write_source_columns", values.flag),
}

_TRANSACTION: Final = ("txnAppId", "txnVersion")

OPTIONS: Final = ("url", "stream", "streamColumn", *_READERS, *_TRANSACTION)
"""All options, spelled as in error messages. Their case does not matter."""

_OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options that Spark's stream writer passes together with the sink's own."""


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse options that Spark or a pipeline's file gives as strings.

    >>> parse_options({"url": "redis://h", "stream": "s", "maxlen": "1000"}, streaming=False).trim
    ('MAXLEN', '~', '1000')

    Raises `DeclarationError`, which names the option, its value and the remedy.
    """
    ours = {name.lower() for name in _OF_SPARK} if streaming else set[str]()
    texts = values.recognised(
        {name: text for name, text in given.items() if name.lower() not in ours}, OPTIONS
    )
    made: dict[str, Any] = {
        "url": values.url("url", texts.get("url")),
        "stream": "" if "streamColumn" in texts else _stream("stream", texts.get("stream")),
    }
    if "streamColumn" in texts:
        made["stream_column"] = values.name("streamColumn", texts["streamColumn"])
    _check_together(texts, streaming=streaming)
    for name, (field, read) in _READERS.items():
        if name in texts:
            made[field] = read(name, texts[name])
    if "txnAppId" in texts:
        made["transaction"] = (
            values.name("txnAppId", texts["txnAppId"]),
            _version("txnVersion", texts["txnVersion"]),
        )
    for name, text in given.items():
        if name.lower() == "checkpointlocation":
            made["checkpoint"] = text
    return SinkOptions(**made)


def _check_together(texts: Mapping[str, str], *, streaming: bool) -> None:
    if "stream" in texts and "streamColumn" in texts:
        raise DeclarationError(
            "stream and streamColumn exclude each other: both say to which stream a row is written"
        )
    if "maxlen" in texts and "minid" in texts:
        raise DeclarationError("maxlen and minid exclude each other, as in XADD")
    named = [name for name in _TRANSACTION if name in texts]
    if streaming and named:
        raise DeclarationError(
            f"{named[0]} is for batch writes (for example in foreachBatch); a streaming query is "
            "exactly-once because of its checkpoint. Remove it."
        )
    if not streaming and "delivery" in texts:
        raise DeclarationError(
            "delivery says how a streaming query writes; a batch write is exactly-once if txnAppId and "
            "txnVersion are set. Remove delivery."
        )
    if "failOnDataLoss" in texts and (
        texts.get("delivery") == "atLeastOnce" or not (streaming or named)
    ):
        raise DeclarationError(
            "failOnDataLoss has no effect here: only a write that takes effect once (a streaming query, or txnAppId "
            "and txnVersion) records what the stream had. Remove it."
        )
    if "nonFinite" in texts and texts.get("codec") == "msgpack":
        raise DeclarationError(
            "nonFinite has no effect with codec=msgpack, which has NaN and infinities; remove it"
        )
    if len(named) == 1:
        raise DeclarationError(
            "txnAppId and txnVersion identify a transaction together: who writes, and which of its "
            f"writes this is. Only {named[0]} is set."
        )
