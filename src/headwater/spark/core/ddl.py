"""Parses a schema in Spark's DDL without a JVM: ``order_id bigint, price decimal(10, 2)``.

Spark's own parser needs a running session, and would report a mistake only after ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*')|(\w+)|([<>(),:]))")

_PLAIN: Final[dict[str, Callable[[], DataType]]] = {
    "string": StringType,
    "binary": BinaryType,
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}
_TYPES: Final = (*_PLAIN, "decimal", "array", "map", "struct")


def parse_schema(text: str) -> StructType:
    """Return the columns that ``text`` declares. Raises `ValueError`, which describes the expected text.

    >>> parse_schema("id string, lines array<struct<item: string, n: int>> not null").simpleString()
    'struct<id:string,lines:array<struct<item:string,n:int>>>'
    """
    parser = _Parser(text)
    schema = parser.columns(end="", colon=False)
    names = [field.name.lower() for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"duplicate column {twice[0]!r}")
    return schema


class _Parser:
    """A recursive-descent parser: one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"{text[place:].strip()[:20]!r} is not valid in a schema")
            self._tokens.append(found[0].strip())
            place = found.end()
        self._next = 0

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        got = self._take()
        if got != token:
            raise ValueError(f"expected {token!r}, got {_shown(got)}")

    def _accept(self, word: str) -> bool:
        if self._peek().lower() != word:
            return False
        self._next += 1
        return True

    def columns(self, *, end: str, colon: bool) -> StructType:
        """Parse ``name type, …`` up to the token ``end``, which is not consumed."""
        fields = [self._column(colon=colon)]
        while self._accept(","):
            fields.append(self._column(colon=colon))
        if self._peek() != end:
            raise ValueError(f"expected a comma or {_shown(end)}, got {_shown(self._peek())}")
        return StructType(fields)

    def _column(self, *, colon: bool) -> StructField:
        name = self._take()
        if not (name.startswith("`") or re.fullmatch(r"\w+", name)):
            raise ValueError(f"expected a column name, got {_shown(name)}")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if colon:
            self._accept(":")
        kind = self._type(name)
        nullable = True
        if self._accept("not"):
            if not self._accept("null"):
                raise ValueError(
                    f"column {name!r}: expected NULL after NOT, got {_shown(self._peek())}"
                )
            nullable = False
        if self._accept("comment"):
            self._take()
        return StructField(name, kind, nullable)

    def _type(self, column: str) -> DataType:
        word = self._take().lower()
        if word in _PLAIN:
            return _PLAIN[word]()
        if word in {"decimal", "dec", "numeric"}:
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type(column)
            self._expect(">")
            return ArrayType(element)
        if word == "map":
            self._expect("<")
            key = self._type(column)
            self._expect(",")
            value = self._type(column)
            self._expect(">")
            return MapType(key, value)
        if word == "struct":
            self._expect("<")
            fields = self.columns(end=">", colon=True)
            self._expect(">")
            return fields
        near = get_close_matches(word, _TYPES, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Types are {', '.join(_TYPES)}."
        raise ValueError(f"column {column!r}: expected a type, got {_shown(word)}. {hint}")

    def _decimal(self) -> DecimalType:
        if not self._accept("("):
            return DecimalType()
        digits = self._number()
        scale = self._number() if self._accept(",") else 0
        self._expect(")")
        if not (1 <= digits <= 38 and scale <= digits):
            raise ValueError(
                f"decimal({digits}, {scale}): the precision must be 1 to 38, and the scale at most the precision"
            )
        return DecimalType(digits, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise ValueError(f"expected a number, got {_shown(token)}")
        return int(token)


def _shown(token: str) -> str:
    return repr(token) if token else "the end"
