"""Limits a batch by ``maxEntriesPerTrigger``, ``maxBytesPerTrigger``, or both.

The number of entries is exact. Bytes are an estimate, because the driver reads no bodies: an entry's size is
its stream's memory divided by the number of entries. A batch with anything to read has at least one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def allowances(
    wanted: Mapping[str, int],
    *,
    entries: int | None,
    size: int | None,
    weigh: Callable[[Sequence[str]], Mapping[str, int]],
) -> dict[str, int]:
    """Return how many entries of each stream a batch may take; earlier streams have priority.

    ``entries`` and ``size`` (bytes) limit the whole batch. ``weigh`` returns the sizes of the streams' entries,
    and is called only if it is needed.

    >>> allowances({"a": 9, "b": 9}, entries=None, size=1000, weigh=lambda _: {"a": 100, "b": 300})
    {'a': 5, 'b': 1}
    """
    allowed = dict(wanted)
    hungry = [stream for stream, want in wanted.items() if want]
    if size is not None and hungry:
        weights = weigh(hungry)
        heavy = {stream: wanted[stream] * weights[stream] for stream in hungry}
        dealt = shares(heavy, size)
        allowed |= {stream: dealt[stream] // weights[stream] for stream in hungry}
        if not any(allowed.values()):
            allowed[hungry[0]] = 1
    return allowed if entries is None else shares(allowed, entries)


def shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide ``limit`` evenly among streams; what one stream does not need goes to the others.

    No stream waits for another, however long the other's backlog is. If there is less than one for each
    stream, the first ones get it.

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
