"""The worker framework: handlers of stream entries that lose none.

app        App: declares consumers, runs them, publishes
stream     Stream: a name, a message type, a codec
batches    Batch: messages that are handled together
outcome    Dead, Again: how a handler says that it did not succeed; what a run ended as
retry      Backoff: how long an entry waits after a failed delivery
decide     how a delivery ends, given the outcome
delivery   Delivery: what a handler may know
dependencies  Use: what else a handler gets, opened and closed
middleware Middleware: what an app does around every delivery
statistics Statistics: what a process has done, and its progress
scheduled  Scheduled: a message that is published later
running    all consumers in one process; loop is one of them, and says how its parts fit
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
