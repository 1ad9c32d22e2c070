"""Warns once when modules that are meant to be compiled run as plain Python.

Plain Python is correct but many times slower (docs/reference/performance.md). It runs if the package was
installed from source without a C compiler, so the user is warned. ``HEADWATER_PURE=1`` requests it, without a
warning.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from headwater._build import hot_modules


class NotCompiled(UserWarning):
    """Headwater runs as plain Python, many times slower than compiled."""


def notice() -> str | None:
    """Return the warning for a user of a plain installation; None if every hot module is compiled or plain Python
    was requested."""
    if os.environ.get("HEADWATER_PURE") == "1":
        return None
    modules = hot_modules(Path(__file__).parent)
    plain = sum(module.extension() is None for module in modules)
    if not plain:
        return None
    return (
        f"{plain} of {len(modules)} modules are not compiled, so Headwater runs many times slower than it "
        "can. Install a C compiler and the headers of Python (Debian and Ubuntu: apt-get install gcc "
        "python3-dev), then reinstall Headwater with `pip install --force-reinstall --no-cache-dir …`; in a "
        "checkout run `make build`. HEADWATER_PURE=1 runs plain Python without this warning."
    )


@cache
def warn_once() -> None:
    """Warn the first caller in this process about a plain installation (`NotCompiled`)."""
    text = notice()
    if text is not None:
        warnings.warn(text, NotCompiled, stacklevel=3)
