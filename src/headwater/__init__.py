"""Headwater: a stream store compatible with Redis Streams, a worker framework with at-least-once
delivery, and a Spark source and sink with pipelines that turn streams into tables.

Public names are imported on first access (PEP 562), so ``import headwater`` loads only the modules that a
program uses: no redis, no asyncio, no rich, no pyspark.

>>> import headwater
>>> headwater.StreamID.parse("1526569498055-0").ms
1526569498055
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if os.environ.get("HEADWATER_PURE") == "1":
    # Before every other import: modules that are imported earlier would be the compiled ones.
    from headwater import _pure

    _pure.install()

if TYPE_CHECKING:
    from headwater import aio as aio
    from headwater.client.sync.connect import connect as connect
    from headwater.common.model import IDRange as IDRange
    from headwater.common.model import StreamID as StreamID
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.journal.log.report import RecoveryReport as RecoveryReport
    from headwater.messages.dead import DeadLetter as DeadLetter
    from headwater.version import __version__ as __version__
    from headwater.worker import Again as Again
    from headwater.worker import App as App
    from headwater.worker import Backoff as Backoff
    from headwater.worker import Batch as Batch
    from headwater.worker import Dead as Dead
    from headwater.worker import Delivery as Delivery
    from headwater.worker import Ending as Ending
    from headwater.worker import Failed as Failed
    from headwater.worker import Limit as Limit
    from headwater.worker import Middleware as Middleware
    from headwater.worker import PoolProcessDied as PoolProcessDied
    from headwater.worker import Scheduled as Scheduled
    from headwater.worker import Statistics as Statistics
    from headwater.worker import Stream as Stream
    from headwater.worker import Tick as Tick
    from headwater.worker import Use as Use

_HOMES = {
    "Again": "headwater.worker",
    "App": "headwater.worker",
    "Backoff": "headwater.worker",
    "Batch": "headwater.worker",
    "Dead": "headwater.worker",
    "DeadLetter": "headwater.messages.dead",
    "Delivery": "headwater.worker",
    "Ending": "headwater.worker",
    "Failed": "headwater.worker",
    "HeadwaterError": "headwater.errors",
    "IDRange": "headwater.common.model",
    "Limit": "headwater.worker",
    "Middleware": "headwater.worker",
    "PoolProcessDied": "headwater.worker",
    "RecoveryReport": "headwater.journal.log.report",
    "Scheduled": "headwater.worker",
    "Statistics": "headwater.worker",
    "Stream": "headwater.worker",
    "StreamID": "headwater.common.model",
    "Tick": "headwater.worker",
    "Use": "headwater.worker",
    "__version__": "headwater.version",
    "aio": "headwater.aio",
    "connect": "headwater.client.sync.connect",
}
"""Public name → the module from which it is imported; for a module, its own name."""

__all__ = [*_HOMES]  # noqa: PLE0604  # the keys are strings, which ruff cannot see


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value: object = module if home == f"headwater.{name}" else getattr(module, name)
    globals()[name] = value  # later look-ups do not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
