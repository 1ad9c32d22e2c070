"""The retry policy of guarded connections, shared by `sync.guarded` and `aio.guarded`. Such connections
wait as long as a command may block, and repeat a command only if running it twice is harmless.

In redis-py one object decides whether to retry: the connection's ``retry``, which every command, pipeline
and subscription uses. So only the connection class is replaced, by one with a `GuardedPolicy`. The policy
obeys rules 1 to 4 of `attempts`, and two more:

Rule 5. Connecting and the health check happen before a command is noted as sent. If either fails, the
        command was not sent.
Rule 6. The connection may be silent for ``socket_timeout`` seconds longer than the command may block (`silence`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from redis.exceptions import AskError, MovedError, WatchError
from redis.retry import AbstractRetry

from headwater.client.attempts import Sent, explain, may_try_again
from headwater.client.drivers import Procedure
from headwater.client.repeatable import Command
from headwater.client.server_url import NodeAddress
from headwater.client.silence import Silence


class GuardedPolicy(AbstractRetry[Any]):
    """The redis-py retry policy of one connection. It retries only if `Sent` permits it.

    `sync.guarded` and `aio.guarded` combine it with redis-py's two ``Retry`` classes and make the
    attempts.
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
        """Clean up with ``fail`` after failed attempt number ``failures``, which ended with ``error``. Return
        the seconds until the next attempt. Raises ``error`` if there must be no further attempt.

        Runs before `Sent.end`. The arguments are those of redis-py's ``call_with_retry``.
        """
        if is_retryable is not None and not is_retryable(error):
            raise error
        sent = self._sent
        again = may_try_again(sent, error)
        try:
            yield partial(fail, error, failures) if with_failure_count else partial(fail, error)
        except WatchError:
            # A WatchError tells the caller to repeat the transaction. That is wrong if EXEC may have run.
            if again or not sent.unrepeatable:
                raise
        if not again:
            explain(sent, error)
            raise error
        if 0 <= self._retries < failures:
            raise error
        return float(self._backoff.compute(failures))


class Guarded:
    """The common part of the two base classes that `guarded` puts before a connection class of redis-py."""

    policy: type[GuardedPolicy]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sent = Sent()
        self._silence: Silence | None = None
        """The silence of the current command and its reply, or of several that were sent together."""
        super().__init__(*args, **kwargs)

    @property
    def retry(self) -> Any:
        """The retry policy. Assigning one wraps it in a `GuardedPolicy`."""
        return self._retry

    @retry.setter
    def retry(self, retry: AbstractRetry[Any]) -> None:
        self._retry = self.policy(retry, self._sent)

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> Any:
        announced: list[Command] = [tuple(command) for command in commands]
        self._sent.announced = announced
        return super().pack_commands(announced)  # type: ignore[misc]  # a redis-py class follows


def name_cluster(error: AskError, connection: Any) -> None:
    """Replace the message of a redirection with one that names the cluster's url, because the client of a single
    server does not follow redirections."""
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
    """Return a subclass of ``ours`` and redis-py's connection class ``theirs``, in this order. Its name
    begins with ``prefix``."""
    if issubclass(theirs, ours):
        return theirs
    return type(f"{prefix}{theirs.__name__}", (ours, theirs), {"__module__": ours.__module__})
