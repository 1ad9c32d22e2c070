"""Arguments and options shared by several subcommands."""

from __future__ import annotations

import re
from typing import Annotated

from headwater.cli.command import Option, Positional
from headwater.errors import HeadwaterError


def entry_id(text: str) -> str:
    """Parse an entry id, whose sequence number may be omitted. Raises `HeadwaterError` if it is not an id.

    >>> entry_id("1526569498055")
    '1526569498055-0'
    """
    from headwater.common.model import StreamID

    try:
        return str(StreamID.parse(text if "-" in text else f"{text}-0"))
    except ValueError:
        raise HeadwaterError(
            f"{text!r} is not the id of an entry: expected milliseconds and a number, such as 1526569498055-0"
        ) from None


def id_or_none(text: str) -> str | None:
    """Return the entry id in a text that is an id or a time; None if it is a time, such as 2026-11-23.

    Raises `HeadwaterError` if a number is too large for an id.
    """
    return entry_id(text) if re.fullmatch(r"\d+(?:-\d+)?", text, re.ASCII) else None


def duration(text: str) -> str:
    """Check a duration and return it unchanged. Raises `HeadwaterError` if it cannot be parsed."""
    from headwater.common.durations import milliseconds

    milliseconds(text, what="duration", least_ms=0)
    return text


def moment(text: str) -> int:
    """Parse a point in time into Unix milliseconds. Raises `HeadwaterError` if it cannot be parsed."""
    from headwater.common.moments import milliseconds_of

    return milliseconds_of(text, "time")


StreamName = Annotated[str, Positional(metavar="STREAM", help="The stream.")]
GroupName = Annotated[str, Positional(metavar="GROUP", help="The consumer group.")]
MaybeGroup = Annotated[
    str | None, Positional(metavar="GROUP", help="Only this group. [default: all]")
]
EntryId = Annotated[str, Positional(metavar="ID", parser=entry_id, help="The entry's id.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only show what would be changed.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
