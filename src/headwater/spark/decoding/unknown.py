"""Finds the attributes of documents that the schema does not have, at any depth.

Most documents do not have such attributes. At the top level, the names show this; below it, one pass of msgspec
does, without a Python object per value. Only a document that may have unknown attributes is searched.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headwater.spark.core.finite import in_words
from headwater.spark.decoding.nested import MARK, decoded

_log = logging.getLogger("headwater.spark")

_MOST_NAMES: Final = 100
"""Maximum number of names that a process logs and remembers for one query."""
_MOST_QUERIES: Final = 100
"""Maximum number of queries whose names one process remembers."""
_MOST_CHARACTERS: Final = 100
"""Maximum number of characters of a name in the log."""
_DEEPEST: Final = 64

_PLACE: Final = re.compile(r"\[\d+\]")
_QUERY_IDS: Final = ("sql.streaming.queryId", "spark.sql.execution.id")

_logged: dict[str, set[str]] = {}
"""The names that this process has logged, by query."""


class UnknownAttributes:
    """The attributes that documents have and ``columns`` do not.

    >>> from pyspark.sql.types import LongType
    >>> unknown = UnknownAttributes({"id": LongType()}, packed=False)
    >>> unknown.of(b'{"id": 17}'), unknown.of(b'{"id": 17, "colour": "red"}')
    (None, b'{"colour":"red"}')
    """

    def __init__(self, columns: Mapping[str, DataType], *, packed: bool) -> None:
        # A document in MessagePack becomes JSON only if it has unknown attributes.
        self._module: Any = msgspec.msgpack if packed else msgspec.json
        self._columns = columns
        nested = any(map(_has_struct, columns.values()))
        self._check = self._module.Decoder(_struct(columns)).decode if nested else None
        self._names_known = frozenset(columns).issuperset
        self.may_be = True
        """True if the last document may have unknown attributes."""
        self._object = self._module.Decoder(dict[str, msgspec.Raw]).decode
        self._list = self._module.Decoder(list[msgspec.Raw]).decode
        self._names: dict[str, None] = {}

    def of(self, document: bytes) -> bytes | None:
        """Return a JSON object of the unknown attributes of ``document``, by path; None if it has none.

        The result is empty if JSON cannot represent one of the values (half of a surrogate pair, an extension of
        MessagePack); the raw entry must then be kept.
        """
        if self._is_known(document):
            return None
        try:
            found = dict(self._struct_in(self._columns, document, "", 0))
        except (ValueError, TypeError, RecursionError):
            return b""  # a value of MessagePack that JSON does not have
        for path in found:
            if len(self._names) < _MOST_NAMES:
                self._names.setdefault(_PLACE.sub("", path)[:_MOST_CHARACTERS])
        if not found:
            return None
        text = msgspec.json.encode(found)
        return b"" if MARK in text else text

    def known(self, document: bytes) -> Iterable[tuple[str, msgspec.Raw]]:
        """Return the attributes of a document that are columns, and set `may_be`. Raises `ValueError` if the
        document is not valid."""
        self.may_be = True
        found: dict[str, msgspec.Raw] = self._object(document)
        if self._names_known(found):
            self.may_be = self._check is not None
            return found.items()
        return [pair for pair in found.items() if pair[0] in self._columns]

    def _is_known(self, document: bytes) -> bool:
        try:
            return self._check is not None and self._check(document) is not None
        except (ValueError, TypeError, RecursionError):
            return False  # an unknown attribute, or a value of another kind

    def log(self, stream: str) -> None:
        """Log the names that were found, each once per query in this process."""
        names, self._names = self._names, {}
        if not names:
            return
        query = _query()
        while query not in _logged and len(_logged) >= _MOST_QUERIES:
            del _logged[next(iter(_logged))]
        seen = _logged.setdefault(query, set())
        new = [name for name in names if name not in seen][: _MOST_NAMES - len(seen)]
        seen.update(new)
        if new:
            _log.warning(
                "stream %r has attributes that the schema does not have, which are kept in _rescued: %s.",
                stream,
                ", ".join(map(ascii, new)),
            )

    def _struct_in(
        self, columns: Mapping[str, DataType], raw: bytes, path: str, depth: int
    ) -> Iterator[tuple[str, msgspec.Raw]]:
        for name, value in self._parts(self._object, raw, {}).items():
            here = f"{path}.{name}" if path else name
            if name in columns:
                yield from self._inside(columns[name], bytes(value), here, depth + 1)
            else:
                yield here, self._as_json(value)

    def _inside(
        self, type_: DataType, raw: bytes, path: str, depth: int
    ) -> Iterator[tuple[str, msgspec.Raw]]:
        if depth > _DEEPEST:
            return
        if isinstance(type_, StructType):
            columns = {field.name: field.dataType for field in type_.fields}
            yield from self._struct_in(columns, raw, path, depth)
        elif isinstance(type_, ArrayType):
            for place, value in enumerate(self._parts(self._list, raw, [])):
                yield from self._inside(
                    type_.elementType, bytes(value), f"{path}[{place}]", depth + 1
                )
        elif isinstance(type_, MapType):
            for name, value in self._parts(self._object, raw, {}).items():
                yield from self._inside(type_.valueType, bytes(value), f"{path}.{name}", depth + 1)

    def _parts(self, decode: Any, raw: bytes, nothing: Any) -> Any:
        try:
            return decoded(decode, raw)
        except (ValueError, TypeError, RecursionError):
            return nothing  # a value of another kind, which does not fit its column anyway

    def _as_json(self, value: msgspec.Raw) -> msgspec.Raw:
        if self._module is msgspec.json:
            return value
        return msgspec.Raw(msgspec.json.encode(in_words(msgspec.msgpack.decode(value))))


def _struct(columns: Mapping[str, DataType]) -> Any:
    """Return the msgspec type of objects that have only the attributes ``columns``."""
    fields = {f"f{at}": (name, _kind(type_)) for at, (name, type_) in enumerate(columns.items())}
    return msgspec.defstruct(
        "Known",
        [(own, kind, None) for own, (_name, kind) in fields.items()],
        rename={own: name for own, (name, _kind) in fields.items()},
        forbid_unknown_fields=True,
    )


def _kind(type_: DataType) -> Any:
    if isinstance(type_, StructType):
        return _struct({field.name: field.dataType for field in type_.fields}) | None
    if isinstance(type_, ArrayType) and _has_struct(type_):
        return list[_kind(type_.elementType)] | None  # type: ignore[misc]
    if isinstance(type_, MapType) and _has_struct(type_):
        return dict[str, _kind(type_.valueType)] | None  # type: ignore[misc]
    return msgspec.Raw


def _has_struct(type_: DataType) -> bool:
    if isinstance(type_, ArrayType):
        return _has_struct(type_.elementType)
    if isinstance(type_, MapType):
        return _has_struct(type_.valueType)
    return isinstance(type_, StructType)


def _query() -> str:
    context = TaskContext.get()
    found: Iterable[str | None] = (
        () if context is None else (context.getLocalProperty(name) for name in _QUERY_IDS)
    )
    return next(filter(None, found), "")
