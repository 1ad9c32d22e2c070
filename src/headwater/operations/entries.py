"""Reads entries as text: the last of a stream, those after an id, or new ones. Conditions select among them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from headwater.common.names import text_of
from headwater.errors import HeadwaterError
from headwater.groups.protocol.missing_stream import missing, of_stream
from headwater.groups.protocol.operation import Operation, Word, accepted, mapping

PAGE = 200
"""Maximum number of entries that are read in one step."""


_LAST_ID: Final = f"{2**64 - 1}-{2**64 - 1}"
"""The last possible id."""


class TextEntry(NamedTuple):
    """One entry. Bytes that are not UTF-8 become surrogates (`headwater.common.names`)."""

    id: str
    fields: Sequence[tuple[str, str]]


class LastEntries(NamedTuple):
    """The last entries of a stream."""

    found: Sequence[TextEntry]
    """The entries that meet the conditions, oldest first."""
    end: str
    """The id of the stream's newest entry, after which a reader continues; ``0-0`` if the stream is empty."""


class Condition(NamedTuple):
    """A condition on one field of an entry."""

    field: str
    name: str
    """The operator, as it was written."""
    value: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse ``FIELD OP VALUE``. Raises `HeadwaterError` for anything else.

        >>> Condition.parse("total >= 10")
        Condition(field='total', name='>=', value='10')
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise HeadwaterError(
                f"{text!r} is not a condition: write a field, one of {' '.join(_OPERATORS)}, and a value, such as "
                "'total >= 10'"
            )
        return cls(*match.groups())

    def holds(self, entry: TextEntry) -> bool:
        """Return whether a field of this name meets the condition. Numbers compare as numbers, others as text.

        >>> Condition.parse("total > 9").holds(TextEntry("1-0", [("total", "10")]))
        True
        >>> Condition.parse("item ~ te").holds(TextEntry("1-0", [("item", "tea")]))
        True
        """
        compare = _OPERATORS[self.name]
        alike = _as_text if self.name == "~" else _alike
        return any(
            compare(*alike(value, self.value)) for name, value in entry.fields if name == self.field
        )


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": operator.contains,
}
"""The operators by name; ``~`` means that the value contains the text."""

_FORM = re.compile(r"\s*(.+?)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)


def _as_text(value: str, wanted: str) -> tuple[str, str]:
    return value, wanted


def _alike(value: str, wanted: str) -> tuple[Any, Any]:
    """Return two numbers, which are exact, or the two texts if one of them is not a number."""
    try:
        numbers = Decimal(value), Decimal(wanted)
    except InvalidOperation:
        return value, wanted
    return (value, wanted) if any(one.is_nan() for one in numbers) else numbers


def read_entry(stream: str, entry_id: str) -> Operation[TextEntry | None]:
    """Return one entry; None if the stream does not have it."""
    replies = yield [["XRANGE", stream, entry_id, entry_id]]
    return next(_parsed(accepted(replies[0])), None)


def last(stream: str, count: int, conditions: Sequence[Condition] = ()) -> Operation[LastEntries]:
    """Return the last ``count`` entries that meet the conditions. Raises `HeadwaterError` if the stream is missing."""
    found: list[TextEntry] = []
    newest, end = "", "+"
    while len(found) < count:
        size = PAGE if conditions else count
        replies = yield [["XREVRANGE", stream, end, "-", "COUNT", size], ["EXISTS", stream]]
        if not accepted(replies[1]):
            raise (yield from missing(stream))
        page = list(_parsed((yield from of_stream(replies[0], stream))))
        newest = newest or (page[0].id if page else "0-0")
        found += [one for one in page if all(each.holds(one) for each in conditions)]
        if len(page) < size:
            break
        end = f"({page[-1].id}"
    return LastEntries(found[:count][::-1], newest)


def page_after(stream: str, after: str) -> Operation[list[TextEntry]]:
    """Return up to `PAGE` entries after the id ``after``, oldest first."""
    if after == _LAST_ID:  # servers refuse a range that begins after it
        return []
    replies = yield [["XRANGE", stream, f"({after}", "+", "COUNT", PAGE]]
    return list(_parsed(accepted(replies[0])))


def next_after(stream: str, after: str, *, block_ms: int) -> Operation[list[TextEntry]]:
    """Return entries after the id ``after``; wait at most ``block_ms`` for the first one."""
    words: list[Word] = ["XREAD", "COUNT", PAGE, "BLOCK", block_ms, "STREAMS", stream, after]
    replies = yield [words]
    reply = accepted(replies[0])
    if not reply:
        return []
    rows = next(iter(mapping(reply).values())) if isinstance(reply, dict) else reply[0][1]
    return list(_parsed(rows))


def _parsed(rows: Sequence[Any]) -> Iterator[TextEntry]:
    for entry_id, words in rows:
        texts = [text_of(word) for word in words]
        yield TextEntry(entry_id.decode(), list(zip(texts[::2], texts[1::2], strict=True)))
