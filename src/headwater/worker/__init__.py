"""The worker framework: runs handlers for the entries of streams. A crash of a worker loses no entry.

app        App: declares consumers, runs them, publishes; app_declaring has its decorators
declare    the declarations of an application, and the objects that its handlers get
store      connections to the store, clocks, waiting
leases     renews the leases of a process, to show that the process is alive
settle     results, acknowledgements, retries and dead letters
observe    counters, logs, telemetry, health; tracing makes OpenTelemetry spans
run        slots, threads, pools of processes, batches, limits, expiry
read       reading and claiming, in order where declared
publish    publishing, now or later
running    runs all consumers of a process; loop runs one consumer and makes its stages
process    the processes of ``headwater work``
testing    App.test(), on a clock that tests advance
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.worker.app import App as App
    from headwater.worker.declare.batches import Batch as Batch
    from headwater.worker.declare.delivery import Delivery as Delivery
    from headwater.worker.declare.dependencies import Use as Use
    from headwater.worker.declare.limit import Limit as Limit
    from headwater.worker.declare.middleware import Middleware as Middleware
    from headwater.worker.declare.outcome import Again as Again
    from headwater.worker.declare.outcome import Dead as Dead
    from headwater.worker.declare.outcome import Ending as Ending
    from headwater.worker.declare.outcome import Failed as Failed
    from headwater.worker.declare.outcome import PoolProcessDied as PoolProcessDied
    from headwater.worker.declare.retry import Backoff as Backoff
    from headwater.worker.declare.scheduled import Scheduled as Scheduled
    from headwater.worker.declare.statistics import Statistics as Statistics
    from headwater.worker.declare.stream import Stream as Stream
    from headwater.worker.declare.ticks import Tick as Tick

_HOMES = {
    "Again": "headwater.worker.declare.outcome",
    "App": "headwater.worker.app",
    "Backoff": "headwater.worker.declare.retry",
    "Batch": "headwater.worker.declare.batches",
    "Dead": "headwater.worker.declare.outcome",
    "Delivery": "headwater.worker.declare.delivery",
    "Ending": "headwater.worker.declare.outcome",
    "Failed": "headwater.worker.declare.outcome",
    "Limit": "headwater.worker.declare.limit",
    "Middleware": "headwater.worker.declare.middleware",
    "PoolProcessDied": "headwater.worker.declare.outcome",
    "Scheduled": "headwater.worker.declare.scheduled",
    "Statistics": "headwater.worker.declare.statistics",
    "Stream": "headwater.worker.declare.stream",
    "Tick": "headwater.worker.declare.ticks",
    "Use": "headwater.worker.declare.dependencies",
}
"""Public name → the module that defines it. Each module is imported on first access, so that a program that uses
only one name, such as `Backoff`, does not load the whole framework."""

__all__ = [*_HOMES]  # noqa: PLE0604  # the keys are strings, which ruff cannot see


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater.worker' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
