"""The hooks, middleware and counters that all consumers of an app share."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from headwater.groups.settling.settling import Addition
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.lifespan import Hooks
from headwater.worker.declare.middleware import Chain, Middleware
from headwater.worker.declare.statistics import ConsumerProgress, ConsumerStatistics, Counters


class Extensions:
    """Hooks, middleware and counters of one app. The counters count since the start of the process."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self.hooks = Hooks()
        self.chain = Chain(middleware)
        self.published = 0
        self._middleware = list(middleware)
        self._counters: dict[tuple[str, str], Counters] = {}
        self._lock = threading.Lock()

    def use(self, middleware: Middleware) -> None:
        """Add the innermost middleware."""
        self.chain = Chain([*self._middleware, middleware])
        self._middleware.append(middleware)

    def counters(self, consumer: Consumer) -> Counters:
        """Return the counters of this consumer."""
        return self._counters.setdefault((consumer.stream.name, consumer.group), Counters())

    def statistics(
        self, consumer: Consumer, progress: ConsumerProgress | None
    ) -> ConsumerStatistics:
        """Return the consumer's statistics, with a copy of its counters."""
        return ConsumerStatistics(
            consumer.name,
            consumer.stream.name,
            consumer.group,
            replace(self.counters(consumer)),
            progress,
            [] if progress is None else progress.late(consumer.lease_ms),
        )

    @contextmanager
    def publishing(self, additions: Sequence[Addition]) -> Iterator[list[str]]:
        """Call the hooks before and after the block. The block sends ``additions`` and appends the added ids to
        the list."""
        self.chain.publishing(additions)
        ids: list[str] = []
        error: BaseException | None = None
        try:
            yield ids
        except BaseException as problem:
            error = problem
            ids += getattr(problem, "added", ())
            raise
        finally:
            with self._lock:
                self.published += len(ids)
            self.chain.published(additions, ids, error)
