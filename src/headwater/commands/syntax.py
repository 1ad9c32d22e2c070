"""The syntax of commands: parsing into the tree of COMMAND DOCS, and a form for people.

    key [MAXLEN | MINID] <* | id> count:integer field value [field value ...]

Words in upper case are literal, words in lower case are values, ``[…]`` is optional, ``<a | b>`` is a
choice, and ``[x ...]`` repeats the ``x`` before it; without such an ``x`` it means any number of ``x``. The type
of a value follows a colon. Without it the type is string, or key if the name is one of `KEY_NAMES`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPES = ("string", "integer", "double", "pattern", "unix-time", "key")
KEY_NAMES = frozenset({"key", "newkey", "source", "destination"})

_WORD = re.compile(r"[\[\]<>|]|[^\s\[\]<>|]+")


class Argument(NamedTuple):
    """One argument. ``kind`` is ``pure-token``, ``oneof``, ``block`` or the type of a value. ``token`` is the literal
    word itself, or the one before a value; empty without such a word."""

    name: str
    kind: str
    token: str = ""
    optional: bool = False
    multiple: bool = False
    multiple_token: bool = False
    parts: tuple[Argument, ...] = ()


def shown_syntax(text: str) -> str:
    """Return a syntax without the types of its values, as people read it.

    >>> shown_syntax("[COUNT count:integer] <ip:port | id>")
    '[COUNT count] <ip:port | id>'
    """
    return re.sub(rf":(?:{'|'.join(TYPES)})\b", "", text)


def parse_syntax(text: str) -> tuple[Argument, ...]:
    """Parse a syntax into its arguments.

    >>> [(one.name, one.kind, one.token, one.multiple) for one in parse_syntax("key [COUNT n] id [id ...]")]
    [('key', 'key', '', False), ('n', 'string', 'COUNT', False), ('id', 'string', '', True)]
    """
    words = _WORD.findall(text)
    alternatives, end = _alternatives(words, 0, "")
    assert end == len(words), f"{text!r} continues after its end"
    assert len(alternatives) == 1, f"{text!r} has alternatives without brackets"
    return tuple(alternatives[0])


def _alternatives(words: list[str], at: int, closing: str) -> tuple[list[list[Argument]], int]:
    """Parse up to ``closing``. Return a list of arguments for each alternative, and the position of ``closing``."""
    found: list[list[Argument]] = [[]]
    while at < len(words) and words[at] != closing:
        word, current = words[at], found[-1]
        at += 1
        if word == "|":
            found.append([])
        elif word == "[":
            inner, at = _closed(words, at, "]")
            if inner[-1] and inner[-1][-1].name == "...":
                _repeat(current, inner[-1][:-1])
            else:
                current.append(_grouped(inner)._replace(optional=True))
        elif word == "<":
            inner, at = _closed(words, at, ">")
            current.append(_grouped(inner))
        else:
            current.append(_single(word))
    return found, at


def _closed(words: list[str], at: int, closing: str) -> tuple[list[list[Argument]], int]:
    inner, end = _alternatives(words, at, closing)
    assert end < len(words), f"{' '.join(words)!r} lacks {closing!r}"
    return inner, end + 1


def _single(word: str) -> Argument:
    if word == "...":
        return Argument("...", "string")
    if not re.search("[a-z]", word):
        return Argument(word.lower(), "pure-token", word)
    name, colon, kind = word.rpartition(":")
    if not colon or kind not in TYPES:
        name, kind = word, "key" if word in KEY_NAMES else "string"
    return Argument(name, kind)


def _grouped(alternatives: list[list[Argument]]) -> Argument:
    """Return the content of a pair of brackets as one argument."""
    parts = [_block(items) for items in alternatives]
    if len(parts) == 1:
        return parts[0]
    return Argument("-or-".join(part.name for part in parts[:2]), "oneof", parts=tuple(parts))


def _block(items: list[Argument]) -> Argument:
    if len(items) == 1:
        return items[0]
    first, second = items[0], items[1]
    is_valued = len(items) == 2 and first.kind == "pure-token" and not second.optional
    if is_valued and second.kind != "pure-token" and not second.token:
        return second._replace(token=first.token)
    return Argument(first.name, "block", parts=tuple(items))


def _repeat(current: list[Argument], again: list[Argument]) -> None:
    """Mark ``again`` as repeated if ``current`` ends with it. Otherwise append it as an argument that may occur any
    number of times."""
    item, count = _block(again), len(again)
    repeated = item._replace(multiple=True, multiple_token=bool(item.token))
    if current[-count:] == again:
        current[-count:] = [repeated]
    else:
        current.append(repeated._replace(optional=True))
