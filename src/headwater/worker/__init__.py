"""The worker framework: runs handlers for the entries of streams and loses none.

    app           App: declares consumers, runs them, publishes
    stream        Stream: a name, a message type, a codec
    batches       Batch: messages that are handled together
    outcome       Dead, Again: exceptions with which a handler chooses the outcome
    retry         Backoff: how long an entry waits after a failed delivery
    decide        how a delivery ends, given the outcome
    delivery      Delivery: the delivery that a handler handles
    dependencies  Use: other values that a handler gets, opened and closed by the worker
    metrics       metrics of worker processes for Prometheus
    tracing       Tracing: spans of OpenTelemetry
    middleware    Middleware: hooks around every delivery and every published message
    statistics    Statistics: what a process has done, and its progress
    scheduled     Scheduled: a message that is published later

Inside, `running` runs all consumers of a process and `loop` runs one of them, with the parts in its diagram.
`supervise` starts the processes of ``headwater work``.
"""

from __future__ import annotations

from headwater.worker.app import App
from headwater.worker.batches import Batch
from headwater.worker.delivery import Delivery
from headwater.worker.dependencies import Use
from headwater.worker.middleware import Middleware
from headwater.worker.outcome import Again, Dead, Ending, Failed
from headwater.worker.retry import Backoff
from headwater.worker.scheduled import Scheduled
from headwater.worker.statistics import Statistics
from headwater.worker.stream import Stream

__all__ = [
    "Again",
    "App",
    "Backoff",
    "Batch",
    "Dead",
    "Delivery",
    "Ending",
    "Failed",
    "Middleware",
    "Scheduled",
    "Statistics",
    "Stream",
    "Use",
]
