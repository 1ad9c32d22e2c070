"""What the compiled files use of Cython, when Cython is not there: the same code runs as Python.

>>> compiled
False
"""

from __future__ import annotations

from typing import Any

compiled = False


def cast(_type: Any, value: Any, **_options: Any) -> Any:
    """The value itself: plain Python has no other type for it."""
    return value


def address(value: Any) -> Any:
    """Plain Python takes no addresses; the value stands for itself."""
    return value
