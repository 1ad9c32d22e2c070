"""Reads the columns' texts from entries, in the form that they have with the codec ``fields``.

    fields      each column is the text of the field with its name
    bytes       likewise; columns.py allows only binary and string columns, so values are not converted
    json        the attributes of the JSON document in the field ``data``
    msgpack     likewise, in MessagePack
    faststream  the attributes of the JSON document that FastStream stores in ``__data__``

An attribute's text is the one that messages write for its value (ADR 6): strings unchanged, numbers as decimal
text, nested values as JSON; null counts as missing. Therefore casting.py is the same for all codecs. Only binary
values differ: JSON has them in base64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypedDict, cast

import msgspec
import pyarrow as pa

from headwater.errors import DecodeError
from headwater.messages.codecs import DATA_FIELD
from headwater.messages.faststream import FASTSTREAM_FIELD, faststream_body
from headwater.messages.fields import text
from headwater.spark.core.options import Codec
from headwater.spark.decoding.nested import (
    MISFIT,
    QUOTE,
    Reading,
    decoded,
    text_of_json,
    text_of_seconds,
)
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.unknown import UnknownAttributes

Texts = dict[str, pa.BinaryArray]
Attributes = Callable[[bytes], Iterable[tuple[str, bytes | None]]]
"""Returns the wanted attributes of a document as texts. Raises `ValueError` for an invalid document."""

SHOWN: Final = 100

IN_BASE64: Final[frozenset[Codec]] = frozenset({"json", "faststream"})
"""Codecs whose documents have binary values in base64."""

_FIELDS: Final[dict[Codec, bytes]] = {
    "json": DATA_FIELD,
    "msgpack": DATA_FIELD,
    "faststream": FASTSTREAM_FIELD,
}


class Documents:
    """Extracts columns from entries of one codec.

    >>> from headwater.spark.decoding.page import ListPage
    >>> page = ListPage([b"1-0"], [[b"data", b'{"id": 17, "item": "tea"}']])
    >>> texts, bad = Documents("json", {"item": "string"}).texts(page)
    >>> texts["item"].to_pylist(), bad
    ([b'tea'], {})
    """

    def __init__(
        self,
        codec: Codec,
        columns: Mapping[str, Reading],
        unknown: UnknownAttributes | None = None,
    ) -> None:
        self._names = list(columns)
        self._field = _FIELDS.get(codec)
        self._attributes = _msgpack(columns) if codec == "msgpack" else _json(columns, unknown)
        self._unknown = unknown
        self._body = faststream_body if codec == "faststream" else bytes

    def texts(
        self, page: Page, rest: dict[int, bytes] | None = None
    ) -> tuple[Texts, dict[int, str]]:
        """Return the text of each column, and a reason for each entry without a valid document.

        Attributes that no column has are added to ``rest``, by entry.
        """
        if self._field is None:
            return {name: page.column(name.encode()) for name in self._names}, {}
        columns: dict[str, list[bytes | None]] = {name: [None] * len(page) for name in self._names}
        bad: dict[int, str] = {}
        field, unknown = self._field.decode(), self._unknown
        rest = {} if rest is None else rest
        for place, document in enumerate(page.column(self._field).to_pylist()):
            if document is None:
                bad[place] = f"no field {field!r}"
                continue
            try:
                body = self._body(document)
                for name, value in self._attributes(body):
                    columns[name][place] = value
                if (
                    unknown is not None
                    and unknown.may_be
                    and (others := unknown.of(body)) is not None
                ):
                    rest[place] = others
            except (ValueError, TypeError, RecursionError, DecodeError) as error:
                bad[place] = f"{field}={cut(document)}: {error}"
        return {name: pa.array(values, pa.binary()) for name, values in columns.items()}, bad

    def bodies(self, page: Page) -> Iterator[bytes]:
        """Yield the undecoded documents of the entries, for callers that read attributes themselves."""
        if self._field is None:
            return
        for document in page.column(self._field).to_pylist():
            if document is not None:
                yield self._body(document)


def cut(value: bytes) -> str:
    """Return a value in the form for error messages: quoted, and cut to `SHOWN` characters."""
    shown = value.decode("utf-8", "backslashreplace")
    return repr(shown if len(shown) <= SHOWN else shown[:SHOWN] + "…")


def _json(columns: Mapping[str, Reading], unknown: UnknownAttributes | None) -> Attributes:
    decode = msgspec.json.Decoder(_wanted(columns, msgspec.Raw)).decode
    unquote = msgspec.json.Decoder(str).decode
    special = {name for name, reading in columns.items() if reading == "moment"}

    def attributes(document: bytes) -> Iterable[tuple[str, bytes | None]]:
        try:
            found = decode(document).items() if unknown is None else unknown.known(document)
        except ValueError:
            for name, raw in decoded(decode, document).items():
                yield name, text_of_json(bytes(raw), columns[name])
            return
        for name, raw in found:  # as in `text_of_json`, but without a call for each value
            value = bytes(raw)
            if value[0] == QUOTE:
                try:
                    yield name, unquote(value).encode()
                except ValueError:
                    yield name, MISFIT + value
            elif name in special:
                yield name, text_of_json(value, "moment")
            else:
                yield name, None if value == b"null" else value

    return attributes


def _msgpack(columns: Mapping[str, Reading]) -> Attributes:
    decode = msgspec.msgpack.Decoder(_wanted(columns, Any)).decode

    def attributes(document: bytes) -> Iterable[tuple[str, bytes | None]]:
        for name, value in decode(document).items():
            if columns[name] == "moment" and type(value) is int:
                yield name, text_of_seconds(b"%d" % value)
            else:
                yield name, None if value is None else text(value)

    return attributes


def _wanted(names: Iterable[str], kind: Any) -> Any:
    """Return the type that decodes only the attributes ``names`` of a document."""
    return cast("Any", TypedDict)("Wanted", dict.fromkeys(names, kind), total=False)
