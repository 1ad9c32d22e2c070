"""What a group needs done, as talk with a server, without knowing the connection it goes over.

    operation ──[commands]──▶ driver ──▶ redis.Redis or redis.asyncio.Redis
              ◀──[replies]───

Rule 1. An operation is a generator: it yields a list of commands, which go out together, and is
        sent the list of their replies. What it returns is its result.
Rule 2. An error reply is a value, `Refused`, in the place of its reply: the operation decides. A
        lost connection is raised in the caller of the driver, and the operation is closed: no
        driver sends a command again that may have run.
Rule 3. One operation is one step or many harmless ones: wherever it is closed, what it has done so
        far keeps every promise of `groups`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

T = TypeVar("T")

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]
Operation: TypeAlias = Generator[list[Command], list[Any], T]


class Refused(HeadwaterError):
    """The server answered a command with an error; ``code`` is its first word (``NOGROUP``)."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        word = text.partition(" ")[0]
        self.code = code or (word if word.isupper() else "ERR")


class GroupVanished(Refused):
    """The stream or the group is gone: deleted, flushed, or destroyed while workers used it."""


def accepted(reply: Any) -> Any:
    """The reply, unless it is an error: then that is raised, a missing group as `GroupVanished`."""
    if isinstance(reply, Refused):
        raise reply
    return reply


def executed(replies: Sequence[Any]) -> list[Any]:
    """Of the replies to MULTI … EXEC those that EXEC returned, each an error where its command
    failed. Raises the error for which nothing was executed."""
    if isinstance(replies[-1], Refused):
        raise next(reply for reply in replies if isinstance(reply, Refused))
    return [_judged(one) for one in replies[-1]]


def single(*command: Word) -> Operation[Any]:
    """One command; its reply, or its error raised."""
    replies = yield [command]
    return accepted(replies[0])


class Script:
    """A Lua script, sent by its digest and only where the server does not know it by its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[Word], arguments: Iterable[Word]) -> Operation[Any]:
        """Run it. What a script cannot be told twice it must not do twice: a lost reply is raised."""
        words = [len(keys), *keys, *arguments]
        replies = yield [["EVALSHA", self.digest, *words]]
        if isinstance(replies[0], Refused) and replies[0].code == "NOSCRIPT":
            replies = yield [["EVAL", self.text, *words]]
        return accepted(replies[0])


def mapping(reply: Any) -> dict[bytes, Any]:
    """A map reply, of either protocol version, as a dict."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


# --- drivers --------------------------------------------------------------------------------------


def run(client: redis.Redis, operation: Operation[T]) -> T:
    """Carry out an operation over a redis-py client.

    Raises what the operation raises, and redis-py's ConnectionError or TimeoutError.
    """
    from redis.exceptions import ResponseError

    execute: Callable[..., Any] = client.execute_command
    try:
        commands = next(operation)
        while True:
            if len(commands) == 1:
                try:
                    replies = [execute(*_wire(commands[0]))]
                except ResponseError as error:
                    replies = [error]
            else:
                pipeline = client.pipeline(transaction=False)
                queue: Callable[..., Any] = pipeline.execute_command
                for command in commands:
                    queue(*_wire(command))
                try:
                    replies = pipeline.execute(raise_on_error=False)
                except ResponseError as error:
                    raise _judged(error) from error  # to the words that open a connection
            commands = operation.send([_judged(reply) for reply in replies])
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        operation.close()


async def perform(client: redis.asyncio.Redis, operation: Operation[T]) -> T:
    """As `run`, over a ``redis.asyncio`` client."""
    from redis.exceptions import ResponseError

    execute: Callable[..., Awaitable[Any]] = client.execute_command
    try:
        commands = next(operation)
        while True:
            if len(commands) == 1:
                try:
                    replies = [await execute(*_wire(commands[0]))]
                except ResponseError as error:
                    replies = [error]
            else:
                pipeline = client.pipeline(transaction=False)
                for command in commands:
                    pipeline.execute_command(*_wire(command))
                try:
                    replies = await pipeline.execute(raise_on_error=False)
                except ResponseError as error:
                    raise _judged(error) from error  # as in `run`
            commands = operation.send([_judged(reply) for reply in replies])
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        operation.close()


def _wire(command: Command) -> list[Word]:
    """redis-py reshapes the replies of commands whose name is a str; bytes it leaves alone, and
    replies that nobody reshapes are both faster and the same in either protocol version."""
    name = command[0]
    return [name.encode() if isinstance(name, str) else name, *command[1:]]


def _judged(reply: Any) -> Any:
    """A redis-py error as `Refused`; connection errors, which a pipeline may hold, raised."""
    if not isinstance(reply, Exception):
        return reply
    from redis.exceptions import ResponseError

    if not isinstance(reply, ResponseError):
        raise reply
    text = str(reply)
    # redis-py takes the code off the text of those errors that it has a class for.
    code = getattr(reply, "status_code", None) or ""
    if code and code != "ERR":
        text = f"{code} {text}"
    if "NOGROUP" in text[:20]:
        return GroupVanished(text, "NOGROUP")
    return Refused(text, code)
