"""Errors about a stream or group that does not exist, with advice if only the stream's partitions exist."""

from __future__ import annotations

from typing import Any

from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Operation, Refused, accepted


class StreamMissing(HeadwaterError):
    """Raised for a stream that does not exist: its key is missing or has a value of another type."""


class GroupMissing(HeadwaterError):
    """Raised if the stream does not have the group."""


def partitions_of(stream: str) -> Operation[str]:
    """Return the name of the stream's first partition, quoted for a shell; empty without partitions."""
    first = f"{stream}.{{0}}"
    replies = yield [["EXISTS", first]]
    return f"'{first}'" if accepted(replies[0]) else ""


def missing(stream: str) -> Operation[StreamMissing]:
    """Return the error for a stream that does not exist."""
    first = yield from partitions_of(stream)
    advice = "check the name and the address"
    if first:
        advice = f"it is split into partitions: name one of them, such as {first}"
    return StreamMissing(f"there is no stream {stream!r}: {advice}")


def of_stream(reply: Any, stream: str) -> Operation[Any]:
    """Return the reply to a command that reads ``stream``. Raises `StreamMissing`, or the error reply."""
    if isinstance(reply, Refused):
        if "no such key" in str(reply).lower():
            raise (yield from missing(stream))
        if reply.code == "WRONGTYPE":
            raise StreamMissing(
                f"{stream!r} is not a stream: the command TYPE shows what the key holds"
            )
    return accepted(reply)
