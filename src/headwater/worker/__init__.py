"""The worker framework: handlers of stream entries that lose none.

app        App: declares consumers, runs them, publishes
stream     Stream: a name, a message type, a codec
endings    Dead, Again, Backoff: how a handler says that it did not succeed
delivery   Delivery: what a handler may know
running    all consumers in one process; loop is one of them, and says how its parts fit
"""

from __future__ import annotations

from headwater.worker.app import App
from headwater.worker.delivery import Delivery
from headwater.worker.endings import Again, Backoff, Dead
from headwater.worker.stream import Stream

__all__ = ["Again", "App", "Backoff", "Dead", "Delivery", "Stream"]
