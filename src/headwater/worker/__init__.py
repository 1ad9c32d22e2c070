"""The worker framework: runs handlers for the entries of streams and loses none.

    app           App: declares consumers, runs them, publishes
    stream        Stream: a name, a message type, a codec
    batches       Batch: messages that are handled together
    outcome       Dead, Again: exceptions with which a handler chooses the outcome
    retry         Backoff: how long an entry waits after a failed delivery
    decide        how a delivery ends, given the outcome
    limit         Limit: how often entries start, and how many run at once
    delivery      Delivery: the delivery that a handler handles
    dependencies  Use: other values that a handler gets, opened and closed by the worker
    metrics       metrics of worker processes for Prometheus
    tracing       Tracing: spans of OpenTelemetry
    middleware    Middleware: hooks around every delivery and every published message
    statistics    Statistics: what a process has done, and its progress
    scheduled     Scheduled: a message that is published later
    ticks         Tick: a call at a declared time

Inside, `running` runs all consumers of a process and `loop` runs one of them, with the parts in its diagram.
`supervise` starts the processes of ``headwater work``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.worker.app import App as App
    from headwater.worker.batches import Batch as Batch
    from headwater.worker.delivery import Delivery as Delivery
    from headwater.worker.dependencies import Use as Use
    from headwater.worker.limit import Limit as Limit
    from headwater.worker.middleware import Middleware as Middleware
    from headwater.worker.outcome import Again as Again
    from headwater.worker.outcome import Dead as Dead
    from headwater.worker.outcome import Ending as Ending
    from headwater.worker.outcome import Failed as Failed
    from headwater.worker.outcome import PoolProcessDied as PoolProcessDied
    from headwater.worker.retry import Backoff as Backoff
    from headwater.worker.scheduled import Scheduled as Scheduled
    from headwater.worker.statistics import Statistics as Statistics
    from headwater.worker.stream import Stream as Stream
    from headwater.worker.ticks import Tick as Tick

_HOMES = {
    "Again": "headwater.worker.outcome",
    "App": "headwater.worker.app",
    "Backoff": "headwater.worker.retry",
    "Batch": "headwater.worker.batches",
    "Dead": "headwater.worker.outcome",
    "Delivery": "headwater.worker.delivery",
    "Ending": "headwater.worker.outcome",
    "Failed": "headwater.worker.outcome",
    "Limit": "headwater.worker.limit",
    "Middleware": "headwater.worker.middleware",
    "PoolProcessDied": "headwater.worker.outcome",
    "Scheduled": "headwater.worker.scheduled",
    "Statistics": "headwater.worker.statistics",
    "Stream": "headwater.worker.stream",
    "Tick": "headwater.worker.ticks",
    "Use": "headwater.worker.dependencies",
}
"""Public name → the module that defines it. Each is imported on first access, so that those who use one module, such
as `durations`, do not load the framework."""

__all__ = [*_HOMES]  # noqa: PLE0604  # the keys are strings, which ruff cannot see


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater.worker' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
