"""The part of `App` that opens it and publishes messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Self, Unpack, overload

from headwater.errors import HeadwaterError
from headwater.groups.settling.adding import Adding
from headwater.worker.declare.extensions import Extensions
from headwater.worker.declare.open_apps import left, open_apps, opened
from headwater.worker.declare.scheduled import Scheduled
from headwater.worker.declare.stream import (
    Durations,
    ManyOptions,
    Sending,
    SendOptions,
    Stream,
    is_name,
)
from headwater.worker.publish.publishing import Publisher
from headwater.worker.store.connections import Connections


def _refuse_in_loop(stream: str, *, use: str = "await send") -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise HeadwaterError(
        f"this call for {stream!r} would block the running event loop: use `{use}`"
    )


def _of_scheduled(stream: Stream[Any], scheduled_id: str) -> tuple[str, str]:
    """Return the name of a stream and the id of a scheduled message. Raises `HeadwaterError` for a stream with
    partitions, in which an id is ambiguous, and for text that cannot be an id."""
    if not is_name(scheduled_id):
        raise HeadwaterError(
            f"scheduled_id={scheduled_id!r} must be the id of a scheduled message (`Scheduled.id`)"
        )
    if stream.partitions is not None:
        raise HeadwaterError(
            f"an id does not tell which partition of {stream.name!r} has the message: cancel it by the "
            "Scheduled that send returned, or name the partition, as in orders.parts[3]"
        )
    return stream.name, scheduled_id


class AppPublishing:
    """Publishes to any stream. The methods of `Stream` find the app and call its methods."""

    def __init__(self, connections: Connections, *, name: str, extensions: Extensions) -> None:
        self.url = connections.url
        """The address of the store."""
        self.name = name
        """The name of the app in logs and errors."""
        self._connections = connections
        self._publisher = Publisher(connections)
        self._extensions = extensions
        self._openers = 0
        """Number of open ``async with`` blocks. The last block to end closes the connections."""
        self._openers_lock = threading.Lock()

    @overload
    async def send(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        after: None = None,
        **options: Unpack[SendOptions],
    ) -> str: ...
    @overload
    async def send(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        after: str | timedelta,
        **options: Unpack[SendOptions],
    ) -> Scheduled: ...
    async def send(self, stream: Stream[Any], message: Any, **options: Any) -> str | Scheduled:
        """Add one message to ``stream`` through this app and return its id.

        See `Stream.send` for the options and errors. Use this method, which names the app, if several apps are
        open.
        """
        sending = stream.sending([message], single=True, **options)
        sent: str | Scheduled = (await self._send(sending))[0]
        return sent

    async def _send(self, sending: Sending) -> list[Any]:
        with self._extensions.publishing(sending.additions) as ids:
            if sending.plain:
                ids += await self._publisher.send(sending.additions)
                return ids
            adding = sending.adding()
            ids += await self._publisher.send_apart(adding, sending.additions)
        return self._handles(sending, adding)

    def _publish(self, sending: Sending) -> list[Any]:
        with self._extensions.publishing(sending.additions) as ids:
            adding = sending.adding()
            ids += self._publisher.publish(adding, sending.additions)
        return self._handles(sending, adding)

    def _handles(self, sending: Sending, adding: Adding) -> list[Any]:
        """Return the ids of the messages that were added, or a `Scheduled` for each message that was scheduled."""
        if sending.after_ms is None:
            return adding.outcomes
        cancel, cancel_blocking = self._publisher.cancel, self._cancel_blocking
        return [
            Scheduled(to.stream, str(one), due, cancel=cancel, cancel_blocking=cancel_blocking)
            for to, one, due in zip(
                sending.additions, adding.outcomes, adding.due_ms(), strict=True
            )
        ]

    def _cancel_blocking(self, stream: str, scheduled_id: str) -> bool:
        _refuse_in_loop(stream, use="await cancel")
        return self._publisher.cancel_blocking(stream, scheduled_id)

    async def cancel(self, stream: Stream[Any], scheduled_id: str) -> bool:
        """Cancel a scheduled message; the same as `Stream.cancel`."""
        return await self._publisher.cancel(*_of_scheduled(stream, scheduled_id))

    def cancel_blocking(self, stream: Stream[Any], scheduled_id: str) -> bool:
        """Do the same as `App.cancel`, for code without an event loop."""
        return self._cancel_blocking(*_of_scheduled(stream, scheduled_id))

    @overload
    async def send_many(
        self,
        stream: Stream[Any],
        messages: Iterable[Any],
        *,
        after: None = None,
        **options: Unpack[ManyOptions[Any]],
    ) -> list[str]: ...
    @overload
    async def send_many(
        self,
        stream: Stream[Any],
        messages: Iterable[Any],
        *,
        after: Durations,
        **options: Unpack[ManyOptions[Any]],
    ) -> list[Scheduled]: ...
    async def send_many(
        self, stream: Stream[Any], messages: Iterable[Any], **options: Any
    ) -> list[str] | list[Scheduled]:
        """Add messages to ``stream`` in order and return their ids; the same as `Stream.send_many`."""
        return await self._send(stream.sending(list(messages), **options))

    @overload
    def publish(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        after: None = None,
        **options: Unpack[SendOptions],
    ) -> str: ...
    @overload
    def publish(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        after: str | timedelta,
        **options: Unpack[SendOptions],
    ) -> Scheduled: ...
    def publish(self, stream: Stream[Any], message: Any, **options: Any) -> str | Scheduled:
        """Do the same as `App.send`, for code without an event loop.

        Raises `HeadwaterError` in a thread that runs an event loop, which it would block.
        """
        sending = stream.sending([message], single=True, **options)
        _refuse_in_loop(stream.name)
        sent: str | Scheduled = self._publish(sending)[0]
        return sent

    @overload
    def publish_many(
        self,
        stream: Stream[Any],
        messages: Iterable[Any],
        *,
        after: None = None,
        **options: Unpack[ManyOptions[Any]],
    ) -> list[str]: ...
    @overload
    def publish_many(
        self,
        stream: Stream[Any],
        messages: Iterable[Any],
        *,
        after: Durations,
        **options: Unpack[ManyOptions[Any]],
    ) -> list[Scheduled]: ...
    def publish_many(
        self, stream: Stream[Any], messages: Iterable[Any], **options: Any
    ) -> list[str] | list[Scheduled]:
        """Do the same as `App.send_many`, for code without an event loop."""
        _refuse_in_loop(stream.name)
        return self._publish(stream.sending(list(messages), **options))

    # --- opening for publishing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise HeadwaterError(
                "`async with app` needs an event loop of asyncio, and none runs here. With trio, use `with app:` and "
                "`await trio.to_thread.run_sync(orders.publish, message)`"
            ) from error
        opened(self)
        with self._openers_lock:
            self._openers += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        left(self)
        with self._openers_lock:
            self._openers -= 1
        if not self._openers:
            await self._publisher.close(opened=lambda: self._openers > 0)
        self._close_synchronous()

    def __enter__(self) -> Self:
        opened(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        left(self)
        self._close_synchronous()

    def _close_synchronous(self) -> None:
        """Close the connections that threads have used, unless the app is open elsewhere."""
        if self not in open_apps():
            self._publisher.close_synchronous()

    def _use(self, connections: Connections) -> Connections:
        """Publish and run through ``connections``. Return the connections that were used before."""
        before, self._connections = self._connections, connections
        self.url = connections.url
        self._publisher = Publisher(connections)
        return before
