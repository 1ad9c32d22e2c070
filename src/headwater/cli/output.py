"""The output of the subcommands: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from headwater.cli.command import Option


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
"""The exit status if something is wrong with what was looked at."""

Documents = Sequence[Mapping[str, object]]


def show(documents: Documents, output: OutputFormat, table: Callable[[], object]) -> None:
    """Print ``documents`` as JSON or CSV, or else what ``table`` prints."""
    match output:
        case OutputFormat.JSON:
            print_json(list(documents))
        case OutputFormat.CSV:
            print_csv(documents)
        case OutputFormat.TABLE:
            table()


def print_json(document: Any) -> None:
    """Print one JSON document, indented."""
    import json

    text = json.dumps(document, indent=2, ensure_ascii=False)
    # A byte of a name that is not UTF-8 is the escape of its surrogate, so that the document is UTF-8.
    print(text.encode("utf-8", "backslashreplace").decode())


def print_csv(documents: Documents) -> None:
    """Print one line for each document, below a line with the names of the first one's values. A value that is a
    list or an object is written as JSON; None is empty."""
    import csv

    if not documents:
        return
    writer = csv.DictWriter(sys.stdout, list(documents[0]), lineterminator="\n")
    writer.writeheader()
    for one in documents:
        writer.writerow({name: _cell(value) for name, value in one.items()})


def _cell(value: object) -> object:
    import json

    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | tuple) else value
    )


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows below ``titles``, with each column as wide as its widest cell."""
    lines = [titles, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
