"""What to say about a stream that is not there: perhaps it is split, and only its partitions are."""

from __future__ import annotations

from headwater.groups.operation import Operation, accepted


def partitions_of(stream: str) -> Operation[str]:
    """The name of the stream's first partition, quoted for a shell; empty if there is none."""
    first = f"{stream}.{{0}}"
    replies = yield [["EXISTS", first]]
    return f"'{first}'" if accepted(replies[0]) else ""


def instead_of(stream: str) -> Operation[str]:
    """What to do about a stream that is not there, as the end of a sentence."""
    first = yield from partitions_of(stream)
    if first:
        return f"it is split into partitions: name one of them, such as {first}"
    return "look at the name and the address"
