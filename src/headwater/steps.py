"""Work in steps, which whoever drives it may do at once, or a few at a time with pauses between.

A generator does a step between two yields, at most a few milliseconds of one, and returns the result.
What it works on is its own: nothing else changes it between two steps.

>>> def total(numbers: list[int]) -> Steps[int]:
...     found = 0
...     for number in numbers:
...         found += number
...         yield
...     return found
>>> do_all(total([1, 2, 3]))
6
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def do_all(steps: Steps[T]) -> T:
    """Do every step here and now; the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
