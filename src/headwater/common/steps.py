"""Work in steps: the caller runs all of them in one go, or a few at a time with pauses in between.

A generator does one step of at most a few milliseconds between two yields, and returns the result.
Only the generator uses its data, so the data do not change between two steps.

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
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
