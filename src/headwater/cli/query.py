"""Shared by the subcommands that query a store: its address, the output format, the query itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.groups.operation import Operation

T = TypeVar("T")

DEFAULT_URL = "redis://localhost:6379"

TIMEOUT_SECONDS = 10.0
"""How long a store may take to reply."""

Url = Annotated[
    str,
    typer.Option(envvar="HEADWATER_URL", metavar="URL", help="Address of the store."),
]


AllGroups = Annotated[
    bool,
    typer.Option(
        "--all-groups",
        help="Add deleted entries again even if other groups of the stream will read them too.",
    ),
]


class OutputFormat(StrEnum):
    """The output format of a command."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table, or one JSON document.")
]


def query(url: str, operation: Operation[T]) -> T:
    """Run an operation on the store at ``url`` and return its result.

    Raises `HeadwaterError` if the store cannot be reached, and what the operation raises.
    """
    from redis.exceptions import RedisError

    from headwater.client.redaction import redacted
    from headwater.groups.operation import Refused, run
    from headwater.worker.connections import Connections, lost_connection

    try:
        client = Connections(url).synchronous(deadline_s=TIMEOUT_SECONDS)
        try:
            return run(client, operation)
        finally:
            client.close()
    except lost_connection() as error:
        raise HeadwaterError(f"{redacted(url)} cannot be reached: {error}") from error
    except Refused as error:
        raise HeadwaterError(f"{redacted(url)} refuses this: {error}") from error
    except RedisError as error:  # from a parameter of the url, such as ssl_cert_reqs
        raise HeadwaterError(f"{redacted(url)} cannot be used: {error}") from error


def print_json(document: Any) -> None:
    """Print one JSON document, indented."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows below ``titles``, with each column as wide as its widest cell."""
    lines = [titles, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def length_of_time(ms: int) -> str:
    """Return milliseconds in readable units, rounded down.

    >>> length_of_time(340), length_of_time(61_000), length_of_time(90_000_000)
    ('340 ms', '1 min 1 s', '25 h 0 min')
    """
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min {seconds % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"
