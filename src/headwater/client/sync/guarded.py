"""Connections of redis-py that wait long enough and send nothing twice that must run once.

Rule 1. What failed is tried again only when nothing that was sent in the failed attempt could do
        harm by running twice (`headwater.client.safety`), or nothing was sent at all. Refused
        credentials are never tried again.
Rule 2. An answer may take ``socket_timeout`` seconds beyond what its command asked to wait.
Rule 3. An error says when a command may have run; it is redis-py's own error otherwise.

redis-py asks one object whether to try again, the connection's ``retry``: every command, pipeline
and subscription goes through it. So a connection class is all that has to be our own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from time import sleep
from typing import Any, TypeVar, cast

from redis.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    MovedError,
    WatchError,
)
from redis.retry import Retry
from redis.utils import SENTINEL

from headwater.client.safety import Command, Sent
from headwater.client.server_url import NodeAddress

T = TypeVar("T")

RESPONSE_SECONDS = 30.0
"""How long an answer may take by default; a store that replays its journal does not answer."""

_MAY_HAVE_RUN = "_headwater_may_have_run"

NEVER_AGAIN = (AuthenticationError, AuthorizationError)
"""Errors that the same attempt would meet again."""


def may_try_again(sent: Sent, error: Exception) -> bool:
    """Whether the attempt that ended with ``error`` may be made once more."""
    if isinstance(error, NEVER_AGAIN):
        return False
    # LOADING is the answer of a server that has not run the command.
    return sent.may_repeat or (isinstance(error, BusyLoadingError) and sent.only_one)


def explain(sent: Sent, error: Exception) -> None:
    """Say in ``error`` that a command was sent and may have run."""
    if sent.unrepeatable and not isinstance(error, NEVER_AGAIN):
        what = str(error).rstrip(". ")
        error.args = (
            f"{what}. {sent.unrepeatable} had been sent and may have run, so it was not sent again",
            *error.args[1:],
        )
        say_may_have_run(error)


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


def say_may_have_run(error: Exception) -> None:
    """Have `may_have_run` say so of ``error``."""
    setattr(error, _MAY_HAVE_RUN, True)


def may_have_run(error: Exception) -> bool:
    """Whether `explain` has said of ``error`` that a command was sent that must not be repeated.

    False means that nothing was sent, or nothing that running twice would harm.
    """
    return getattr(error, _MAY_HAVE_RUN, False)


class GuardedRetry(Retry):
    """A `redis.retry.Retry` of one connection, which asks `Sent` before it tries again."""

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

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT002 - redis-py's signature
    ) -> T:
        """As redis-py's, within the rules above."""
        sent = self._sent
        failures = 0
        self._backoff.reset()
        while True:
            outer = sent.begin()
            try:
                return do()
            except self._supported_errors as error:
                if is_retryable is not None and not is_retryable(error):
                    raise
                failures += 1
                again = may_try_again(sent, error)
                try:
                    fail(error, failures) if with_failure_count else fail(error)
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
                sleep(pause)


class GuardedConnection(AbstractConnection):
    """What `guarded` puts before a connection class of redis-py."""

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

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        self._next = [args]
        super().send_command(*args, **kwargs)

    def pack_commands(self, commands: Iterable[Command]) -> Any:
        self._next = list(commands)
        return super().pack_commands(self._next)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        commands, self._next = self._next, None
        # Made and tried first, by commands of their own: what fails here has not sent ours.
        if not self._sock:
            self.connect_check_health(check_health=False)
        if check_health:
            self.check_health()
        self._sent.note(commands)
        super().send_packed_command(command, check_health=False)

    def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT002
        *,
        timeout: float | object = SENTINEL,
        disconnect_on_error: bool = True,
        push_request: bool = False,
    ) -> Any:
        wait = self._sent.wait
        if wait and timeout is SENTINEL and self.socket_timeout is not None:
            timeout = None if wait == inf else wait + self.socket_timeout
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
    """``connection_class`` under the rules above.

    >>> from redis import Connection
    >>> guarded(Connection).__name__
    'GuardedConnection'
    """
    if issubclass(connection_class, GuardedConnection):
        return connection_class
    name = f"Guarded{connection_class.__name__}"
    return type(name, (GuardedConnection, connection_class), {"__module__": __name__})
