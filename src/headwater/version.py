"""The version of the package. All other modules and the build import it from here."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
