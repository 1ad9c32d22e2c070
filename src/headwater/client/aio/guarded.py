"""Guarded connections for asyncio; `headwater.client.guarded` has the rules.

A call that is cancelled while it waits for its reply also closes its connection, so that no other
call receives that reply. redis-py does this in `read_response`, and the code here preserves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from math import inf
from typing import Any, TypeVar

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.exceptions import AskError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from headwater.client.drivers import perform
from headwater.client.guarded import Guarded, GuardedPolicy, derived, name_cluster
from headwater.client.silence import LARGE, Silence

T = TypeVar("T")

_PACKED = frozenset((bytes, str, int))
"""Types that hiredis packs as redis-py does, besides subclasses of str. redis-py rejects a bool."""


class AsyncGuardedRetry(GuardedPolicy, Retry):
    """The `redis.asyncio.retry.Retry` of one connection, with the rules of `GuardedPolicy`."""

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
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
                return await do()
            except self._supported_errors as error:
                failures += 1
                pause = await perform(
                    self.after_failure(
                        error, failures, fail, is_retryable, with_failure_count=with_failure_count
                    )
                )
            finally:
                sent.end(outer)
            if pause > 0:
                await asyncio.sleep(pause)


class AsyncGuardedConnection(Guarded, AbstractConnection):
    """The base class that `guarded` puts before an asyncio connection class of redis-py."""

    policy = AsyncGuardedRetry

    async def send_command(self, *args: Any, **kwargs: Any) -> None:
        self._sent.announced = [args]
        await super().send_command(*args, **kwargs)

    def pack_command(self, *args: Any) -> list[bytes]:
        """Pack a command with hiredis, as redis-py's synchronous connections do. A command that hiredis
        would pack differently is packed by redis-py."""
        others = set(map(type, args)) - _PACKED
        if all(issubclass(one, str) for one in others) and self.encoder.encoding == "utf-8":
            name = args[0]
            if (b" " if isinstance(name, bytes) else " ") not in name:
                return [hiredis.pack_command(args)]
        packed: list[bytes] = super().pack_command(*args)
        return packed

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        sent = self._sent
        commands, sent.announced = sent.announced, None
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()
        sent.note(commands)
        await self._write([command] if isinstance(command, bytes) else command)

    async def _write(self, chunks: Sequence[bytes]) -> None:
        """Write as redis-py does, but without `asyncio.wait_for`: that function makes a task for each write,
        and on Python 3.11 loses a cancellation that arrives when the write has just ended."""
        writer = self._writer
        assert writer is not None, "the caller has connected"
        size = sum(map(len, chunks))
        self._silence = None if size < LARGE else self._new_silence(size)
        try:
            writer.writelines(chunks)
            if self._silence is None:
                await writer.drain()
            else:
                await self._unless_silent(writer.drain(), self._silence, wait=0.0)
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise RedisTimeout("Timeout writing to socket") from None
        except OSError as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"Error while writing to socket: {error}") from error
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    def _new_silence(self, size: int = 0) -> Silence:
        assert self._writer is not None, "the caller has connected"
        return Silence(self._writer.get_extra_info("socket"), size=size)

    async def _unless_silent(self, work: Awaitable[T], silence: Silence, *, wait: float) -> T:
        """Await ``work``. Raises TimeoutError once the connection has been silent for its deadline."""
        deadline = self.socket_timeout
        if deadline is None or wait == inf:
            return await work
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle
        async with asyncio.timeout(None) as scope:

            def look() -> None:
                nonlocal timer
                pause = silence.look(self.socket_timeout or inf, wait)
                if pause > 0:
                    timer = loop.call_later(pause, look)
                else:
                    scope.reschedule(loop.time())

            timer = loop.call_later(silence.begin(deadline, wait), look)
            try:
                return await work
            finally:
                timer.cancel()

    async def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT002
        timeout: float | None = None,
        *,
        disconnect_on_error: bool = True,
        push_request: bool | None = False,
    ) -> Any:
        try:
            if timeout is not None or self.socket_timeout is None or self._writer is None:
                return await super().read_response(
                    disable_decoding,
                    timeout,
                    disconnect_on_error=disconnect_on_error,
                    push_request=push_request,
                )
            # With a timeout argument redis-py would return None and keep the connection open although
            # the reply is still to come.
            reply = super().read_response(
                disable_decoding,
                inf,
                disconnect_on_error=disconnect_on_error,
                push_request=push_request,
            )
            if self._silence is None:
                self._silence = self._new_silence()
            return await self._unless_silent(reply, self._silence, wait=self._sent.wait)
        except TimeoutError:
            raise RedisTimeout(f"Timeout reading from {self._host_error()}") from None
        except AskError as error:
            name_cluster(error, self)
            raise

    async def disconnect(self, *args: Any, **kwargs: Any) -> None:
        self._sent.disconnected()
        await super().disconnect(*args, **kwargs)


@cache
def guarded(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``connection_class`` with `AsyncGuardedConnection` as its first base."""
    return derived("Guarded", AsyncGuardedConnection, connection_class)
