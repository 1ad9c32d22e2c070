"""Connections of redis-py that wait long enough and send nothing twice that must run once: what
`sync.guarded` and `aio.guarded` have in common.

redis-py asks one object whether to try again, the connection's ``retry``: every command, pipeline
and subscription goes through it. So a connection class with a `GuardedPolicy` is all that has to be
our own. Its rules are those of `attempts`, and two more:

Rule 5. A connection is made and its health is checked before a command is noted as sent: what fails
        then has not sent the command.
Rule 6. An answer may take ``socket_timeout`` seconds beyond what its command asked to wait.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import AskError, MovedError, WatchError
from redis.retry import AbstractRetry

from headwater.client.attempts import Sent, explain, may_try_again
from headwater.client.drivers import Procedure
from headwater.client.server_url import NodeAddress


class GuardedPolicy(AbstractRetry[Any]):
    """A redis-py retry policy of one connection, which asks `Sent` before it tries again.

    A driver puts it before one of redis-py's two ``Retry`` classes, and makes the attempts.
    """

    def __init__(self, retry: AbstractRetry[Any], sent: Sent) -> None:
        super().__init__(
            copy.deepcopy(retry._backoff),  # noqa: SLF001 - it has no public name
            retry.get_retries(),
            retry._supported_errors,  # noqa: SLF001
        )
        self._sent = sent

    __hash__ = AbstractRetry.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def after_failure(
        self,
        error: Exception,
        failures: int,
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None,
        *,
        with_failure_count: bool,
    ) -> Procedure[float]:
        """An attempt has ended with ``error``, the ``failures``-th: have it cleaned up by ``fail``; the
        seconds until the next attempt. Raises ``error`` when there is none.

        It is carried out before `Sent.end`. What it is given is given to redis-py's ``call_with_retry``.
        """
        if is_retryable is not None and not is_retryable(error):
            raise error
        sent = self._sent
        again = may_try_again(sent, error)
        try:
            yield partial(fail, error, failures) if with_failure_count else partial(fail, error)
        except WatchError:
            # "Do the transaction again" is wrong advice when EXEC may have run.
            if again or not sent.unrepeatable:
                raise
        if not again:
            explain(sent, error)
            raise error
        if 0 <= self._retries < failures:
            raise error
        return float(self._backoff.compute(failures))


def name_cluster(error: AskError, connection: Any) -> None:
    """Say in a redirection, which the client of a single server does not follow, what does."""
    here = NodeAddress(getattr(connection, "host", ""), getattr(connection, "port", 0))
    there = NodeAddress(error.host or here.host, error.port)
    scheme = "rediss" if hasattr(connection, "check_hostname") else "redis"
    what = "is at" if isinstance(error, MovedError) else "is moving to"
    cluster = f"{scheme}+cluster://{here if here.host else there}"
    text = (
        f"slot {error.slot_id} {what} {there}, another node: to find every key connect to {cluster}"
    )
    error.args = (text,)


def derived(prefix: str, ours: type[Any], theirs: type[Any]) -> type[Any]:
    """redis-py's connection class ``theirs`` with ``ours`` before it; its name begins with ``prefix``."""
    if issubclass(theirs, ours):
        return theirs
    return type(f"{prefix}{theirs.__name__}", (ours, theirs), {"__module__": ours.__module__})
