"""How far one batch goes: ``maxEntriesPerTrigger``, ``maxBytesPerTrigger``, or both.

The number of entries is exact. Bytes are an estimate, for no body passes through the driver: what an
entry weighs is its stream's memory shared out among its entries. A batch that has anything to read
reads one entry at least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


def allowances(
    wanted: Mapping[str, int],
    *,
    entries: int | None,
    size: int | None,
    weigh: Callable[[str], int],
) -> dict[str, int]:
    """How many entries of each stream a batch may take; those named first are served first.

    ``entries`` and ``size`` (bytes) bound the whole; ``weigh`` tells what an entry of a stream
    weighs, and is asked only where it matters.

    >>> allowances({"a": 9, "b": 9}, entries=None, size=1000, weigh={"a": 100, "b": 300}.get)
    {'a': 5, 'b': 1}
    """
    allowed = dict(wanted)
    hungry = [stream for stream, want in wanted.items() if want]
    if size is not None and hungry:
        weights = {stream: weigh(stream) for stream in hungry}
        heavy = {stream: wanted[stream] * weights[stream] for stream in hungry}
        dealt = shares(heavy, size)
        allowed |= {stream: dealt[stream] // weights[stream] for stream in hungry}
        if not any(allowed.values()):
            allowed[hungry[0]] = 1
    return allowed if entries is None else shares(allowed, entries)


def shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """``limit`` dealt out among streams: evenly, and what one does not want to the others.

    No stream waits for another, however long the other's backlog is; where there is less than one
    for each, those named first get it.

    >>> shares({"a": 100, "b": 2, "c": 100}, 10)
    {'a': 4, 'b': 2, 'c': 4}
    """
    dealt = dict.fromkeys(wanted, 0)
    left = min(limit, sum(wanted.values()))
    while left:
        hungry = [stream for stream, want in wanted.items() if dealt[stream] < want]
        portion = max(1, left // len(hungry))
        for stream in hungry[:left]:
            given = min(portion, wanted[stream] - dealt[stream])
            dealt[stream] += given
            left -= given
    return dealt
