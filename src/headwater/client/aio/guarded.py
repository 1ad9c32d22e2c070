"""The rules of `headwater.client.sync.guarded` for redis-py's asyncio connections.

Beside those: a call that is cancelled while it waits for its answer closes its connection, so that
no other call is given that answer. redis-py does so in `read_response`; nothing here undoes it.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from math import inf
from typing import Any, TypeVar

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.exceptions import AskError, WatchError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from headwater.client.safety import Command, Sent
from headwater.client.sync.guarded import explain, may_try_again, name_cluster

T = TypeVar("T")

_PACKED = frozenset((bytes, str, int))
"""Types that hiredis packs as redis-py does, as it does every kind of str. redis-py refuses a bool."""


class GuardedRetry(Retry):
    """A `redis.asyncio.retry.Retry` of one connection, which asks `Sent` before it tries again."""

    def __init__(self, retry: Retry, sent: Sent) -> None:
        super().__init__(
            copy.deepcopy(retry._backoff),  # noqa: SLF001 - it has no public name
            retry.get_retries(),
            retry._supported_errors,  # noqa: SLF001
        )
        self._sent = sent

    __hash__ = Retry.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT002 - redis-py's signature
    ) -> T:
        """As redis-py's, within the rules."""
        sent = self._sent
        failures = 0
        self._backoff.reset()
        while True:
            outer = sent.begin()
            try:
                return await do()
            except self._supported_errors as error:
                if is_retryable is not None and not is_retryable(error):
                    raise
                failures += 1
                again = may_try_again(sent, error)
                try:
                    await (fail(error, failures) if with_failure_count else fail(error))
                except WatchError:
                    # "Do the transaction again" is wrong advice when EXEC may have run.
                    if again or not sent.unrepeatable:
                        raise
                if not again:
                    explain(sent, error)
                    raise
                if 0 <= self._retries < failures:
                    raise
            finally:
                sent.end(outer)
            pause = self._backoff.compute(failures)
            if pause > 0:
                await asyncio.sleep(pause)


class GuardedConnection(AbstractConnection):
    """What `guarded` puts before an asyncio connection class of redis-py."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sent = Sent()
        self._next: list[Command] | None = None
        """The commands whose bytes are sent next."""
        super().__init__(*args, **kwargs)

    @property
    def retry(self) -> Retry:
        """Decides whether to try again; whatever is assigned is held to the rules."""
        return self._retry

    @retry.setter
    def retry(self, retry: Retry) -> None:
        self._retry = GuardedRetry(retry, self._sent)

    async def send_command(self, *args: Any, **kwargs: Any) -> None:
        self._next = [args]
        await super().send_command(*args, **kwargs)

    def pack_command(self, *args: Any) -> list[bytes]:
        """As redis-py's synchronous connections do, by hiredis; what that takes for something else
        is left to redis-py."""
        others = set(map(type, args)) - _PACKED
        if all(issubclass(one, str) for one in others) and self.encoder.encoding == "utf-8":
            name = args[0]
            if (b" " if isinstance(name, bytes) else " ") not in name:
                return [hiredis.pack_command(args)]
        packed: list[bytes] = super().pack_command(*args)
        return packed

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        self._next = [tuple(command) for command in commands]
        return super().pack_commands(self._next)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        commands, self._next = self._next, None
        # Made and tried first, by commands of their own: what fails here has not sent ours.
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()
        self._sent.note(commands)
        await self._write([command] if isinstance(command, bytes) else command)

    async def _write(self, chunks: Iterable[bytes]) -> None:
        """As redis-py does, without `asyncio.wait_for`: that makes a task for each write, and on Python
        3.11 loses a cancellation that comes when the write has just ended."""
        writer = self._writer
        assert writer is not None, "the caller has connected"
        try:
            async with asyncio.timeout(self.socket_timeout or None):
                writer.writelines(chunks)
                await writer.drain()
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise RedisTimeout("Timeout writing to socket") from None
        except OSError as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"Error while writing to socket: {error}") from error
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    async def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT002
        timeout: float | None = None,
        *,
        disconnect_on_error: bool = True,
        push_request: bool | None = False,
    ) -> Any:
        wait = self._sent.wait
        try:
            if not wait or timeout is not None or self.socket_timeout is None:
                return await super().read_response(
                    disable_decoding,
                    timeout,
                    disconnect_on_error=disconnect_on_error,
                    push_request=push_request,
                )
            # A timeout given to redis-py here would return None and keep the connection, with the
            # answer still to come.
            async with asyncio.timeout(None if wait == inf else wait + self.socket_timeout):
                return await super().read_response(
                    disable_decoding, inf, disconnect_on_error=True, push_request=push_request
                )
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
    """``connection_class`` under the rules."""
    if issubclass(connection_class, GuardedConnection):
        return connection_class
    name = f"Guarded{connection_class.__name__}"
    return type(name, (GuardedConnection, connection_class), {"__module__": __name__})
