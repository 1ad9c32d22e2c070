"""Guarded connections for threads; `headwater.client.guarded` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from time import sleep
from typing import Any, TypeVar, cast

from redis.connection import AbstractConnection
from redis.exceptions import AskError
from redis.retry import Retry
from redis.utils import SENTINEL

from headwater.client.attempts import Sent
from headwater.client.drivers import run
from headwater.client.guarded import GuardedPolicy, derived, name_cluster
from headwater.client.repeatable import Command

T = TypeVar("T")


class GuardedRetry(GuardedPolicy, Retry):
    """The `redis.retry.Retry` of one connection, with the rules of `GuardedPolicy`."""

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT002 - redis-py's signature
    ) -> T:
        """Call ``do`` as redis-py does, and again after an error if `after_failure` permits it."""
        sent = self._sent
        failures = 0
        self._backoff.reset()
        while True:
            outer = sent.begin()
            try:
                return do()
            except self._supported_errors as error:
                failures += 1
                pause = run(
                    self.after_failure(
                        error, failures, fail, is_retryable, with_failure_count=with_failure_count
                    )
                )
            finally:
                sent.end(outer)
            if pause > 0:
                sleep(pause)


class GuardedConnection(AbstractConnection):
    """The base class that `guarded` puts before a connection class of redis-py."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sent = Sent()
        super().__init__(*args, **kwargs)

    @property
    def retry(self) -> Retry:
        """The retry policy. Assigning one wraps it in `GuardedRetry`."""
        return self._retry

    @retry.setter
    def retry(self, retry: Retry) -> None:
        self._retry = GuardedRetry(retry, self._sent)

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        self._sent.announced = [args]
        super().send_command(*args, **kwargs)

    def pack_commands(self, commands: Iterable[Command]) -> Any:
        self._sent.announced = announced = list(commands)
        return super().pack_commands(announced)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        sent = self._sent
        commands, sent.announced = sent.announced, None
        if not self._sock:
            self.connect_check_health(check_health=False)
        if check_health:
            self.check_health()
        sent.note(commands)
        super().send_packed_command(command, check_health=False)

    def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT002
        *,
        timeout: float | object | None = SENTINEL,
        disconnect_on_error: bool = True,
        push_request: bool = False,
    ) -> Any:
        if self._sent.wait and timeout is SENTINEL and self.socket_timeout is not None:
            timeout = self._sent.answer_seconds(self.socket_timeout)
        try:
            return super().read_response(
                disable_decoding,
                timeout=cast("float", timeout),
                disconnect_on_error=disconnect_on_error,
                push_request=push_request,
            )
        except AskError as error:
            name_cluster(error, self)
            raise

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        self._sent.disconnected()
        super().disconnect(*args, **kwargs)


@cache
def guarded(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``connection_class`` with `GuardedConnection` as its first base.

    >>> from redis import Connection
    >>> guarded(Connection).__name__
    'GuardedConnection'
    """
    return derived("Guarded", GuardedConnection, connection_class)
