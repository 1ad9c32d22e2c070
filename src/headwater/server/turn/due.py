"""What is due by time alone: the part of a turn that no request causes."""

from __future__ import annotations

from headwater.server.services.services import Services
from headwater.server.services.timers import end_delays, expire_keys, forget_iids


def run_due(services: Services, *, expires: bool) -> None:
    """End delays, expire keys if ``expires``, forget idempotent ids, and serve the blocked clients
    whose time has come."""
    keyspace, records, times = services.keyspace, services.records, services.times
    blocked = services.blocked
    end_delays(keyspace, records, times.now())
    if expires:
        expire_keys(keyspace, records, times.now())
    forget_iids(keyspace, records, times.now())
    services.pubsub.publish_events(None)
    if times.monotonic() >= blocked.pause.until:
        blocked.end_pause()
    blocked.run_due()
    blocked.serve_signalled()
    blocked.end_timed_out()
    times.ended_ns = 0
