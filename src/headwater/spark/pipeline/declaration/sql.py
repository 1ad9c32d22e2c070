"""Finds the tables that an SQL query reads, without a JVM.

This module is not an SQL parser: it looks at the names after FROM and JOIN. These are enough to order tables, to
detect cycles, and to suggest a name for a misspelt one. Spark reports all other mistakes.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<skip> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" )
    | (?P<name> `(?:[^`]|``)+` | [A-Za-z_]\w* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)

_FROM_INSIDE: Final = frozenset({"extract", "trim", "substring", "substr", "overlay", "position"})
"""Functions whose arguments may contain FROM, as in ``extract(day FROM time)``."""

_AFTER_TABLE: Final = frozenset(
    [
        "where",
        "group",
        "order",
        "having",
        "limit",
        "join",
        "inner",
        "left",
        "right",
        "full",
        "cross",
        "semi",
        "anti",
        "natural",
        "on",
        "using",
        "union",
        "except",
        "intersect",
        "minus",
        "window",
        "lateral",
        "pivot",
        "unpivot",
        "tablesample",
        "sort",
        "cluster",
        "distribute",
        "offset",
        "qualify",
    ]
)
"""Words that end a table's name and alias."""


def tables_read(sql: str) -> list[str]:
    """Return the names of the tables that ``sql`` reads, each once.

    Excludes names that the query defines itself (WITH), functions (``range(10)``) and files
    (``parquet.`path` ``).

    >>> tables_read("WITH a AS (SELECT * FROM b) SELECT extract(day FROM t) FROM a, c JOIN `d` USING (x)")
    ['b', 'c', 'd']
    """
    tokens = _tokens(sql)
    own = _defined(tokens)
    found: dict[str, None] = {}
    openers: list[str] = []
    for place, part in enumerate(tokens):
        word = part.lower()
        if part == "(":
            openers.append(tokens[place - 1].lower() if place else "")
        elif part == ")" and openers:
            openers.pop()
        elif word in {"from", "join"} and not _is_no_clause(tokens, place, openers):
            for name in _relations(tokens, place + 1):
                if name.lower() not in own:
                    found.setdefault(name)
    return list(found)


def _tokens(sql: str) -> list[str]:
    return [found[0] for found in _TOKEN.finditer(sql) if found.lastgroup not in {"skip", "text"}]


def _defined(tokens: list[str]) -> set[str]:
    """Return the names of common table expressions: ``name AS (`` or ``name (columns) AS (``."""
    if "with" not in {token.lower() for token in tokens}:
        return set()
    defined: set[str] = set()
    for place, part in enumerate(tokens):
        if part.lower() in {"with", "recursive", ","} and place + 2 < len(tokens):
            name, after = tokens[place + 1], place + 2
            if tokens[after] == "(":
                while after < len(tokens) - 1 and tokens[after] != ")":
                    after += 1
                after += 1
            if [word.lower() for word in tokens[after : after + 2]] == ["as", "("]:
                defined.add(_bare(name).lower())
    return defined


def _is_no_clause(tokens: list[str], place: int, openers: list[str]) -> bool:
    before = [word.lower() for word in tokens[max(0, place - 2) : place]]
    if before in (["is", "distinct"], ["not", "distinct"]):  # a IS NOT DISTINCT FROM b
        return True
    return bool(openers) and openers[-1] in _FROM_INSIDE


def _relations(tokens: list[str], place: int) -> list[str]:
    """Return the names in a FROM clause that begins at ``place``: ``a, b AS x, c``."""
    found: list[str] = []
    while place < len(tokens):
        while tokens[place : place + 1] and tokens[place].lower() in {"lateral", "stream", "table"}:
            place += 1
        name = tokens[place] if place < len(tokens) else ""
        if not re.match(r"[`A-Za-z_]", name):
            break  # a subquery; `tables_read` handles its FROM separately
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        if after not in {"(", "."}:
            found.append(_bare(name))
        place = _end_of_relation(tokens, place + 1)
        if place >= len(tokens) or tokens[place] != ",":
            break
        place += 1
    return found


def _end_of_relation(tokens: list[str], place: int) -> int:
    """Return the place of the token after a relation: a comma, a clause or a closing parenthesis."""
    depth = 0
    while place < len(tokens):
        part = tokens[place]
        if depth == 0 and (part in {",", ")"} or part.lower() in _AFTER_TABLE):
            break
        depth += (part == "(") - (part == ")")
        place += 1
    return place


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
