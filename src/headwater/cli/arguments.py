"""Arguments and options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

from headwater.cli.command import Option, Positional
from headwater.errors import HeadwaterError


def entry_id(text: str) -> str:
    """Parse the id of an entry, whose sequence number may be omitted. Raises `HeadwaterError` for anything else.

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


def duration(text: str) -> str:
    """Check a length of time. Raises `HeadwaterError` if it is not one."""
    from headwater.common.durations import milliseconds

    milliseconds(text, what="duration", least_ms=0)
    return text


def moment(text: str) -> int:
    """Return Unix milliseconds. Raises `HeadwaterError` if it is not a moment."""
    from headwater.common.moments import milliseconds_of

    return milliseconds_of(text, "time")


StreamName = Annotated[str, Positional(metavar="STREAM", help="The stream.")]
GroupName = Annotated[str, Positional(metavar="GROUP", help="The consumer group.")]
MaybeGroup = Annotated[
    str | None, Positional(metavar="GROUP", help="Only this group. [default: all]")
]
EntryId = Annotated[str, Positional(metavar="ID", parser=entry_id, help="The id of an entry.")]
DryRun = Annotated[
    bool, Option("--dry-run", help="Print what would be changed, and change nothing.")
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
