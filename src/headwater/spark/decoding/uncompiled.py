"""Warns once if an executor decodes many rows without the compiled modules, and says what would help.

``--py-files`` ships a zip, from which extension modules cannot be imported. There is no warning if
HEADWATER_PURE is set, because then it is intended, nor for few rows.
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
    """Count rows that this process decoded; warn when plain Python has decoded many."""
    global _rows
    if compiled or os.environ.get("HEADWATER_PURE") == "1":
        return
    before, _rows = _rows, _rows + rows
    if before < ROWS_WORTH_A_WORD <= _rows:
        _log.warning(
            "this executor decodes without Headwater's compiled modules, at about 0.4 million rows a "
            "second instead of 1.1 million: a zip (--py-files) cannot contain them. Ship a packed "
            "environment with --archives, which `headwater spark pack` makes, or install the wheel on "
            "the executors."
        )
