"""Headwater: a stream store that speaks Redis Streams, workers that lose no message, and a Spark
pipeline that turns streams into tables.

The public names are imported when they are first asked for (PEP 562), so that ``import headwater``
costs nothing that a program does not use: no redis, no asyncio, no rich, no pyspark.

>>> import headwater
>>> headwater.StreamID.parse("1526569498055-0").ms
1526569498055
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if os.environ.get("HEADWATER_PURE") == "1":
    # First of all: what is imported before this would be the compiled twin.
    from headwater import _pure

    _pure.install()

if TYPE_CHECKING:
    from headwater import aio as aio
    from headwater.client.sync.connect import connect as connect
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.journal.report import RecoveryReport as RecoveryReport
    from headwater.messages import DeadLetter as DeadLetter
    from headwater.model import Entry as Entry
    from headwater.model import IDRange as IDRange
    from headwater.model import PendingEntry as PendingEntry
    from headwater.model import StreamID as StreamID
    from headwater.version import __version__ as __version__
    from headwater.worker import Again as Again
    from headwater.worker import App as App
    from headwater.worker import Backoff as Backoff
    from headwater.worker import Batch as Batch
    from headwater.worker import Dead as Dead
    from headwater.worker import Delivery as Delivery
    from headwater.worker import Ending as Ending
    from headwater.worker import Failed as Failed
    from headwater.worker import Middleware as Middleware
    from headwater.worker import Scheduled as Scheduled
    from headwater.worker import Statistics as Statistics
    from headwater.worker import Stream as Stream
    from headwater.worker import Use as Use

_HOMES = {
    "Again": "headwater.worker",
    "App": "headwater.worker",
    "Backoff": "headwater.worker",
    "Batch": "headwater.worker",
    "Dead": "headwater.worker",
    "DeadLetter": "headwater.messages",
    "Delivery": "headwater.worker",
    "Ending": "headwater.worker",
    "Entry": "headwater.model",
    "Failed": "headwater.worker",
    "HeadwaterError": "headwater.errors",
    "IDRange": "headwater.model",
    "Middleware": "headwater.worker",
    "PendingEntry": "headwater.model",
    "RecoveryReport": "headwater.journal.report",
    "Scheduled": "headwater.worker",
    "Statistics": "headwater.worker",
    "Stream": "headwater.worker",
    "StreamID": "headwater.model",
    "Use": "headwater.worker",
    "__version__": "headwater.version",
    "aio": "headwater.aio",
    "connect": "headwater.client.sync.connect",
}
"""Public name → the module that defines it, or is it."""

__all__ = [*_HOMES]  # noqa: PLE0604  # the names are strings; ruff cannot see it


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value: object = module if home == f"headwater.{name}" else getattr(module, name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
