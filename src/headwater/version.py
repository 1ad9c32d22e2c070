"""The version of this package: where every other module, and the build, finds it."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
