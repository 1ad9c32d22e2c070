"""Substitutes for the names that compiled files import from Cython, so that the same code runs without Cython.

>>> compiled
False
"""

from __future__ import annotations

from typing import Any

compiled = False


def cast(_type: Any, value: Any, **_options: Any) -> Any:
    """Return ``value`` unchanged, because plain Python has no C types."""
    return value


def address(value: Any) -> Any:
    """Return ``value`` itself, because plain Python has no addresses."""
    return value
