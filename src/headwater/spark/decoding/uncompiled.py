"""What an executor says that decodes without the compiled module: once, and what would help.

``--py-files`` ships a zip, and extension modules cannot be imported from one. Who sets HEADWATER_PURE
has asked for it and hears nothing, and so does whoever reads a few rows.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from headwater.spark.decoding.reply import FASTER

_log = logging.getLogger("headwater.spark")

ROWS_WORTH_A_WORD: Final = 100_000

_rows = 0


def counted(rows: int, *, compiled: bool = FASTER) -> None:
    """Count rows that this process decoded, and warn when the plain decoder has come to many."""
    global _rows
    if compiled or os.environ.get("HEADWATER_PURE") == "1":
        return
    before, _rows = _rows, _rows + rows
    if before < ROWS_WORTH_A_WORD <= _rows:
        _log.warning(
            "this executor decodes without Headwater's compiled modules, about 0.4 million rows a "
            "second instead of 1.1 million: a zip (--py-files) cannot carry them. Ship a packed "
            "environment by --archives, which `headwater spark pack` makes, or install the wheel on "
            "the executors."
        )
