"""Guarded connections for threads; `headwater.client.guarded` has the rules."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from time import sleep
from typing import Any, Final, TypeVar, cast

from redis.connection import AbstractConnection
from redis.exceptions import AskError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry
from redis.utils import SENTINEL

from headwater.client.drivers import run
from headwater.client.guarded import Guarded, GuardedPolicy, derived, name_cluster
from headwater.client.silence import Silence, pause_of

T = TypeVar("T")


SENT_AT_ONCE: Final = 16 * 1024
"""Size of a socket's send buffer, in bytes, by tcp_wmem's default (tcp(7)). A smaller command fits as a whole."""


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


class GuardedConnection(Guarded, AbstractConnection):
    """The base class that `guarded` puts before a connection class of redis-py."""

    policy = GuardedRetry

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        self._sent.announced = [args]
        super().send_command(*args, **kwargs)

    def _connect(self) -> Any:
        """Connect, and set the socket's timeout to the interval at which its `Silence` is checked. The timeout stays,
        because changing it for each command would cost two system calls."""
        sock = super()._connect()  # type: ignore[safe-super]  # a redis-py class follows
        self._set_pause(sock)
        return sock

    def _set_pause(self, sock: Any) -> None:
        if self.socket_timeout is not None and isinstance(sock, socket.socket):
            sock.settimeout(pause_of(self.socket_timeout))

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        sent = self._sent
        commands, sent.announced = sent.announced, None
        if not self._sock:
            self.connect_check_health(check_health=False)
        if check_health:
            self.check_health()
        sent.note(commands)
        self._silence = None
        size = 0 if isinstance(command, str) else sum(map(len, command))
        sock: Any = self._sock
        if size < SENT_AT_ONCE or not isinstance(sock, socket.socket):
            super().send_packed_command(command, check_health=False)
        else:
            self._silence = Silence(sock, size=size)
            self._send_large(sock, command, self._silence)

    def _send_large(self, sock: socket.socket, chunks: Iterable[bytes], silence: Silence) -> None:
        """Send as redis-py does, but without its deadline for the whole command."""
        deadline = self.socket_timeout or inf
        silence.begin(deadline, 0.0)
        try:
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest:
                    try:
                        rest = rest[sock.send(rest) :]
                    except TimeoutError:
                        if not silence.look(deadline, 0.0):
                            raise
        except TimeoutError:
            self.disconnect()
            raise RedisTimeout("Timeout writing to socket") from None
        except OSError as error:
            self.disconnect()
            raise RedisConnectionError(f"Error while writing to socket: {error}") from error
        except BaseException:
            self.disconnect()
            raise

    def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT002
        *,
        timeout: float | object | None = SENTINEL,
        disconnect_on_error: bool = True,
        push_request: bool = False,
    ) -> Any:
        wait, deadline = self._sent.wait, self.socket_timeout
        counts = timeout is SENTINEL and deadline is not None and wait != inf
        if timeout is SENTINEL and wait == inf:
            timeout = None
        elif counts and wait:
            timeout = wait + pause_of(deadline or inf)
        silence = None
        while True:
            try:
                return super().read_response(
                    disable_decoding,
                    timeout=cast("float", timeout),
                    disconnect_on_error=disconnect_on_error and not counts,
                    push_request=push_request,
                )
            except RedisTimeout:
                if not counts:
                    raise
                timeout = self._look(wait, first=silence is None)
                silence = self._silence
                if timeout > 0:
                    continue
                if disconnect_on_error:
                    self.disconnect()
                raise
            except ResponseError as error:
                if isinstance(error, AskError):
                    name_cluster(error, self)
                raise
            except BaseException:
                if disconnect_on_error:
                    self.disconnect()
                raise
            finally:
                if timeout is not SENTINEL:
                    self._set_pause(self._sock)  # redis-py has changed it for later commands too

    def _look(self, wait: float, *, first: bool) -> float:
        """Return how long to wait for the reply after a pause without input, in seconds; 0 after the deadline."""
        deadline = self.socket_timeout or inf
        silence = self._silence = self._silence or Silence(self._sock)
        if first:
            silence.begin(deadline, wait, ago=wait + pause_of(deadline))
        return silence.look(deadline, wait)

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
