"""What the commands share that ask a store: its address, the form of their answer, the question."""

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

PATIENCE_SECONDS = 10.0
"""How long a store may take to answer."""

Url = Annotated[
    str,
    typer.Option(envvar="HEADWATER_URL", metavar="URL", help="Address of the store."),
]


AllGroups = Annotated[
    bool,
    typer.Option(
        "--all-groups",
        help="Add entries that are gone again, although other groups of the stream see them.",
    ),
]


class Form(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[
    Form, typer.Option("--output", "-o", help="A table for people, or one JSON document.")
]


def ask(url: str, operation: Operation[T]) -> T:
    """Carry out an operation on the store at ``url``; its result.

    Raises `HeadwaterError` when the store cannot be reached, and what the operation raises.
    """
    from redis.exceptions import RedisError

    from headwater.client.redaction import redacted
    from headwater.groups.operation import Refused, run
    from headwater.worker.connections import Connections, lost_connection

    try:
        client = Connections(url).synchronous(deadline_s=PATIENCE_SECONDS)
        try:
            return run(client, operation)
        finally:
            client.close()
    except lost_connection() as error:
        raise HeadwaterError(f"{redacted(url)} cannot be reached: {error}") from error
    except Refused as error:
        raise HeadwaterError(f"{redacted(url)} refuses this: {error}") from error
    except RedisError as error:  # of a parameter of the address, such as ssl_cert_reqs
        raise HeadwaterError(f"{redacted(url)} cannot be used: {error}") from error


def print_json(document: Any) -> None:
    """Print one JSON document, indented."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns as wide as their widest cell, below their titles."""
    lines = [titles, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def length_of_time(ms: int) -> str:
    """Milliseconds as people say them, rounded down.

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
