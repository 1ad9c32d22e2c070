"""The output of the subcommands: a table to read, or JSON or CSV for programs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TextIO

from headwater.cli.command import Option
from headwater.common.names import escaped, quoted


class OutputFormat(StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Output = Annotated[
    OutputFormat,
    Option("--output", "-o", help="A table, one JSON document, or comma-separated values."),
]

UNHEALTHY = 3
"""Exit status of a command that worked but found something wrong."""

Documents = Sequence[Mapping[str, object]]


def show(
    records: Sequence[object],
    output: OutputFormat,
    table: Callable[[], object],
    titles: Sequence[str] = (),
) -> None:
    """Print ``records``, named tuples or mappings, as JSON or CSV, or call ``table`` to print a table. ``titles`` is the
    header of CSV. If it is empty, the first record's names are the header; without records, nothing is printed."""
    documents = document(records)
    match output:
        case OutputFormat.JSON:
            print_json(documents)
        case OutputFormat.CSV:
            print_csv(documents, titles)
        case OutputFormat.TABLE:
            table()


def document(value: Any) -> Any:
    """Return ``value`` with all named tuples, at any depth, converted to mappings for JSON and CSV."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: document(one) for name, one in value.items()}
    return [*map(document, value)] if isinstance(value, list | tuple) else value


def say(text: str = "", *, error: bool = False) -> None:
    """Print one line. Line breaks and control characters in ``text`` are escaped (`escaped`)."""
    print(escaped(text), file=sys.stderr if error else sys.stdout)


def print_json(document: Any) -> None:
    """Print one JSON document, indented."""
    print(json_text(document, indent=2))


def json_text(document: Any, *, indent: int | None = None) -> str:
    r"""Return a document as JSON without terminal control characters. Bytes that are not UTF-8 become escapes.

    >>> print(json_text(["caf\udce9", r"\xe9", "\x9b"]))
    ["caf\udce9", "\\xe9", "\u009b"]
    """
    import json

    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return "\n".join(
        "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)
        for line in text.split("\n")
    )


def print_csv(documents: Documents, titles: Sequence[str] = (), *, head: bool = True) -> None:
    """Print a header and one line for each document. The header is ``titles`` or, without them, the names in the first
    document. ``titles`` are printed even without documents. Lists and objects are JSON, and None is empty."""
    import csv

    names = titles or (list(documents[0]) if documents else ())
    if not names:
        return
    cell = quoted if sys.stdout.isatty() else str
    rows = [[cell(_cell(one.get(name))) for name in names] for one in documents]
    for row in [names, *rows] if head else rows:
        # A value is only quoted for characters of the line's end. Readers also end a line at a carriage return.
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(row)
        print(line.getvalue().removesuffix("\r\n"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return json_text(value) if isinstance(value, list | dict | tuple) else str(value)


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows below ``titles``. Each column is as wide as its widest cell. If the terminal is too narrow, cells
    are wrapped."""
    shown = [titles, *(tuple(map(_shown, row)) for row in rows)]
    widths = [max(len(line[column]) for line in shown) for column in range(len(titles))]
    room = _columns() - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROW:
        widths[widths.index(max(widths))] -= 1
    for number, line in enumerate(shown):
        parts = [_wrapped(cell, width) for cell, width in zip(line, widths, strict=True)]
        for at in range(max(map(len, parts))):
            cells = [part[at] if at < len(part) else "" for part in parts]
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            text = "  ".join(padded).rstrip()
            print(coloured(text, "bold") if number == 0 else _with_states(text, line[0]))


_NARROW = 8
"""Minimum width to which a column is narrowed, in characters."""

_STATES = {"ok": "green", "WRONG": "red", "unknown": "yellow"}
"""The colours of states in a row's first cell. Other texts have no colour."""

_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


def _shown(cell: str) -> str:
    """Quote the text of a cell, not its indent, so that a value cannot look like two cells or another row."""
    text = cell.lstrip(" ")
    return cell if not text else f"{cell[: len(cell) - len(text)]}{quoted(text)}"


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    from textwrap import wrap

    return wrap(cell, width, break_on_hyphens=False) or [""]


def _with_states(line: str, first: str) -> str:
    colour = _STATES.get(first)
    if colour is None or not line.startswith(first):
        return line
    return f"{coloured(first, colour)}{line[len(first) :]}"


def _columns() -> int:
    """Return the maximum width of a table, in characters."""
    if not sys.stdout.isatty():
        return 1_000_000
    return terminal_columns()


def terminal_columns() -> int:
    """Return the width of the terminal in characters; 80 if it is unknown."""
    try:
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(2).columns or 80
    except (OSError, ValueError):
        return 80


def coloured(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return ``text``, coloured if ``stream`` (None: stdout) is a terminal, without NO_COLOR and TERM=dumb."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if not wanted or not (stream or sys.stdout).isatty():
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
