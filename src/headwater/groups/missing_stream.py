"""The advice in errors about a stream that does not exist: perhaps only its partitions exist."""

from __future__ import annotations

from headwater.groups.operation import Operation, accepted


def partitions_of(stream: str) -> Operation[str]:
    """Return the name of the stream's first partition, quoted for a shell; empty if there is none."""
    first = f"{stream}.{{0}}"
    replies = yield [["EXISTS", first]]
    return f"'{first}'" if accepted(replies[0]) else ""


def instead_of(stream: str) -> Operation[str]:
    """Return what to do about a stream that does not exist, as the end of a sentence."""
    first = yield from partitions_of(stream)
    if first:
        return f"it is split into partitions: name one of them, such as {first}"
    return "look at the name and the address"
