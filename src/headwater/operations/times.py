"""Lengths of time as text."""

from __future__ import annotations


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
