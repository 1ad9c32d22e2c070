"""Operations: sequences of commands to a server, independent of the client that sends them.

    operation ──[commands]──▶ driver ──▶ redis.Redis, redis.asyncio.Redis or DirectConnection
              ◀──[replies]───

Rule 1. An operation is a generator. It yields a list of commands, which are sent together, and receives
        the list of their replies. Its return value is its result.
Rule 2. An error reply is a value in the list of replies, a `Refused`, and the operation decides what to do.
        If the connection breaks, the driver raises the error to its caller and closes the operation. It never
        repeats a command that may have run.
Rule 3. An operation may be closed at any of its yields. The commands that it has sent up to that point
        leave the group in a consistent state.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from headwater.common.names import bytes_of, text_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from headwater.client.direct import DirectConnection

T = TypeVar("T")

LAST_MS = 2.0**53
"""The greatest score in milliseconds. Greater ones are not exact whole numbers (IEEE 754)."""

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]
Operation: TypeAlias = Generator[list[Command], list[Any], T]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most ``size``, for commands that are sent together. `itertools` has this
    function in Python 3.12 and later.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class Refused(HeadwaterError):
    """Error reply of the server to a command. ``code`` is its first word (``NOGROUP``)."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        word = text.partition(" ")[0]
        self.code = code or (word if word.isupper() else "ERR")


class GroupVanished(Refused):
    """Raised if the stream or the group was deleted, flushed, or destroyed while workers used it."""


def accepted(reply: Any) -> Any:
    """Return the reply. Raise it if it is an error, as `GroupVanished` if the group is missing."""
    if isinstance(reply, Refused):
        raise reply
    return reply


def server_ms(reply: Any) -> int:
    """Return the server's time in Unix milliseconds, given the reply to TIME. Raises an error reply.

    >>> server_ms([b"1526569258", b"55300"])
    1526569258055
    """
    seconds, micros = accepted(reply)
    return int(seconds) * 1000 + int(micros) // 1000


def whole_number(reply: Any) -> int | None:
    """Return the number in a value that any client can write; None if it is missing, refused, or not a number.

    >>> whole_number(b"30000"), whole_number(b"caf\\xe9"), whole_number(None)
    (30000, None, None)
    """
    try:
        return int(reply)
    except (TypeError, ValueError):
        return None


def score_ms(score: bytes | float) -> int:
    """Return the score of a sorted set as a time in milliseconds. Any client can write one, even an infinite one.

    >>> score_ms(b"1526569258055"), score_ms(b"inf"), score_ms(b"-inf")
    (1526569258055, 9007199254740992, 0)
    """
    return int(min(max(0.0, float(score)), LAST_MS))


def executed(replies: Sequence[Any]) -> list[Any]:
    """Return the replies in EXEC's reply, given the replies to MULTI … EXEC. The reply of a command that
    failed is its error. If EXEC itself failed, raise the first error."""
    if isinstance(replies[-1], Refused):
        raise next(reply for reply in replies if isinstance(reply, Refused))
    return [_judged(one) for one in replies[-1]]


def single(*command: Word) -> Operation[Any]:
    """Send one command and return its reply. Raises an error reply."""
    replies = yield [command]
    return accepted(replies[0])


class Script:
    """A Lua script, sent by its digest, or by its text if the server does not know it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def digest(self) -> str:
        """SHA-1 of the text, by which a server knows the script."""
        import hashlib

        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def call(
        self, keys: Sequence[Word], arguments: Iterable[Word], *, large: bool = False
    ) -> Operation[Any]:
        """Run the script and return its reply. If the connection breaks, the call is not repeated, and the error is
        raised. With ``large``, the arguments are not sent twice to a server that does not know the script."""
        words = [len(keys), *keys, *arguments]
        commands: list[Command] = [["EVALSHA", self.digest, *words]]
        if large:
            commands.insert(0, ["SCRIPT", "LOAD", self.text])  # a refusal is ignored
        reply = (yield commands)[-1]
        if isinstance(reply, Refused) and reply.code == "NOSCRIPT":
            (reply,) = yield [["EVAL", self.text, *words]]
        return accepted(reply)


def mapping(reply: Any) -> dict[bytes, Any]:
    """Return a map reply of either protocol version as a dict."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def group_row(reply: Any, name: str) -> dict[bytes, Any] | None:
    """Return the row of a group in the reply to XINFO GROUPS; None if it does not list the group, or was refused."""
    if isinstance(reply, Refused):
        return None
    return next((one for one in map(mapping, reply) if one[b"name"] == bytes_of(name)), None)


# --- drivers --------------------------------------------------------------------------------------


def run(client: redis.Redis | DirectConnection, operation: Operation[T]) -> T:
    """Run an operation on a client and return its result.

    Raises what the operation raises, and the client's error for a lost connection.
    """
    try:
        commands = next(operation)
        while True:
            commands = operation.send(naming_rules(_exchange(client, commands), commands))
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        operation.close()


def run_together(
    client: redis.Redis | DirectConnection, operations: Iterable[Operation[T]]
) -> list[T]:
    """Run operations that are independent of each other, and send their next commands in one request.

    If one of them raises an error, the others are closed and the error is raised. It must be harmless to close
    them (rule 3).
    """
    return run(client, _together(operations))


def together(operations: Iterable[Operation[T]]) -> Operation[list[T | Exception]]:
    """Run operations that are independent of each other, and send their next commands in one request. Return their
    results in order. If an operation raises an error, the error is its result, and the others continue.
    """
    return _together([_caught(one) for one in operations])


def _caught(operation: Operation[T]) -> Operation[T | Exception]:
    try:
        return (yield from operation)
    except Exception as error:
        return error


def _together(operations: Iterable[Operation[T]]) -> Operation[list[T]]:
    running = dict(enumerate(operations))
    results: dict[int, T] = {}
    replies: dict[int, list[Any] | None] = dict.fromkeys(running)
    try:
        while replies:
            wanted: dict[int, list[Command]] = {}
            for number, answered in replies.items():
                operation = running[number]
                try:
                    wanted[number] = (
                        next(operation) if answered is None else operation.send(answered)
                    )
                except StopIteration as finished:
                    results[number] = finished.value
            all_wanted = [one for part in wanted.values() for one in part]
            found = iter((yield all_wanted) if all_wanted else [])
            replies = {number: list(islice(found, len(part))) for number, part in wanted.items()}
    finally:
        for operation in running.values():
            operation.close()
    return [results[number] for number in running]


def _exchange(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands together; return their replies. Raises a refused connection as `Refused`."""
    if not hasattr(client, "pipeline"):  # a DirectConnection
        replies: list[Any] = client.exchange(commands)
        return replies
    from redis.exceptions import ResponseError

    if len(commands) == 1:
        execute: Callable[..., Any] = client.execute_command
        try:
            return [execute(*_wire(commands[0]))]
        except ResponseError as error:
            return [_judged(error)]
    pipeline = client.pipeline(transaction=False)
    queue: Callable[..., Any] = pipeline.execute_command
    for command in commands:
        queue(*_wire(command))
    try:
        replies = pipeline.execute(raise_on_error=False)
    except ResponseError as error:
        raise _judged(error) from error  # a reply to a command that opens a connection
    return [_judged(reply) for reply in replies]


async def perform(client: redis.asyncio.Redis | Exchanging, operation: Operation[T]) -> T:
    """Run an operation on a ``redis.asyncio`` client, or over a connection that several tasks share; see `run`."""
    shared: Exchange | None = getattr(client, "exchange", None)
    try:
        commands = next(operation)
        while True:
            replies = await (exchange(client, commands) if shared is None else shared(commands))
            commands = operation.send(naming_rules(replies, commands))
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        operation.close()


Exchange: TypeAlias = Callable[[list[Command]], Awaitable[list[Any]]]


class Exchanging(Protocol):
    """A connection that several tasks share, for `perform`."""

    async def exchange(self, commands: list[Command], /) -> list[Any]:
        """Send commands together; return their replies, as `exchange` does."""
        ...


async def exchange(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands together over a ``redis.asyncio`` client; return their replies, errors as `Refused`. Raises a
    broken connection, and a refused one as `Refused`."""
    from redis.exceptions import ResponseError

    if len(commands) == 1:
        try:
            return [await client.execute_command(*_wire(commands[0]))]
        except ResponseError as error:
            return [_judged(error)]
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*_wire(command))
    try:
        replies = await pipeline.execute(raise_on_error=False)
    except ResponseError as error:
        raise _judged(error) from error  # a reply to a command that opens a connection
    return [_judged(reply) for reply in replies]


def _wire(command: Command) -> list[Word]:
    """Return the command in the form that redis-py is given.

    The name is bytes, because redis-py converts the replies of commands whose name is a str. Unconverted replies are
    faster, and the same in either protocol version. Text that is not ASCII is also sent as bytes: redis-py cannot
    encode all names.
    """
    words = [one if type(one) is not str or one.isascii() else bytes_of(one) for one in command]
    name = words[0]
    words[0] = name.encode() if isinstance(name, str) else name
    return words


def _judged(reply: Any) -> Any:
    """Return the reply, with an error reply of redis-py converted to `Refused`. Raises connection errors, which
    the replies of a pipeline may contain."""
    if not isinstance(reply, Exception) or isinstance(reply, Refused):
        return reply
    from redis.exceptions import ResponseError

    if not isinstance(reply, ResponseError):
        raise reply
    text = str(reply)
    # redis-py removes the code from the text of errors for which it has a class.
    code = getattr(reply, "status_code", None) or ""
    if code and code != "ERR":
        text = f"{code} {text}"
    return refused(text, code)


def refused(text: str, code: str = "") -> Refused:
    """Return the exception for the text of an error reply."""
    if "NOGROUP" in text[:20]:
        return GroupVanished(text, "NOGROUP")
    if text.startswith("ERR "):
        return Refused(text[4:], "ERR")
    return Refused(text, code)


_DENIED = re.compile(r"'([^' ]+)(?: ([^']+))?' (?:command|subcommand)|access a (key|channel)")


def naming_rules(replies: list[Any], commands: Sequence[Command]) -> list[Any]:
    """Return the replies, after adding to each denial by an ACL the rule that the user needs."""
    for number, reply in enumerate(replies):
        if isinstance(reply, Refused) and reply.code == "NOPERM":
            replies[number] = Refused(f"{reply}; {_rule(str(reply), commands[number])}", "NOPERM")
    return replies


def _rule(text: str, command: Command) -> str:
    """Return advice with the rule that a denied command needs.

    >>> _rule("User bob has no permissions to run the 'xinfo|groups' command", ["XINFO", "GROUPS", "s"])
    'the user needs the rule +xinfo|groups'
    >>> _rule("No permissions to access a key", ["XINFO", "GROUPS", "s"])
    'the user needs the rule ~s'
    """
    denied = _DENIED.search(text)
    name, sub, kind = denied.groups() if denied else (None, None, None)
    if name:
        return f"the user needs the rule +{name}{f'|{sub}' if sub else ''}"
    if kind == "channel":
        return f"the user needs the rule &{command[-1]!s}"
    words = [*command]
    if "STREAMS" in words:
        at = words.index("STREAMS") + 1
    else:
        at = {"XINFO": 2, "XGROUP": 2, "EVAL": 3, "EVALSHA": 3}.get(str(words[0]), 1)
    key = words[at] if at < len(words) else "KEY"
    return f"the user needs the rule ~{text_of(key) if isinstance(key, bytes) else key}"
