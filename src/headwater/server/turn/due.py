"""The work of a turn that is due by time and not caused by a request."""

from __future__ import annotations

from collections.abc import Callable

from headwater.server.services.services import Services
from headwater.server.services.timers import end_delays, expire_keys, forget_iids


def run_due(services: Services, *, expires: bool, acts: bool) -> None:
    """End delays, expire keys if ``expires``, forget idempotent ids, and serve the blocked clients whose time
    has come. Without ``acts``, as on a replica, only serve those clients.

    Each step runs even if an earlier one fails (services/faults.py).
    """
    keyspace, records, times = services.keyspace, services.records, services.times
    blocked = services.blocked

    def expire() -> None:
        expire_keys(keyspace, records, times.now())

    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("ending delays", lambda: end_delays(keyspace, records, times.now())),
        ("expiring keys", expire if expires else lambda: None),
        ("forgetting idempotent ids", lambda: forget_iids(keyspace, records, times.now())),
    )
    others: tuple[tuple[str, Callable[[], object]], ...] = (
        ("publishing events", lambda: services.pubsub.publish_events(None)),
        ("ending CLIENT PAUSE", lambda: _end_pause(services)),
        ("serving blocked clients", blocked.run_due),
        ("serving blocked clients", blocked.serve_signalled),
        ("ending timeouts", blocked.end_timed_out),
    )
    for work, step in (*steps, *others) if acts else others:
        try:
            step()
        except Exception as error:
            services.faults.rest(error, work)
    times.ended_ns = 0


def _end_pause(services: Services) -> None:
    if services.times.monotonic() >= services.blocked.pause.until:
        services.blocked.end_pause()
