"""Helpers of the subcommands that query a store: the option ``--url``, the connection, and the query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

from headwater.cli.command import Option
from headwater.cli.progress import Busy
from headwater.errors import Disconnected, HeadwaterError, StoreClosed

if TYPE_CHECKING:
    import redis

    from headwater.client.direct import DirectConnection
    from headwater.groups.protocol.operation import Operation

T = TypeVar("T")


class Unreachable(HeadwaterError):
    """The store cannot be reached, or does not answer in time."""


DEFAULT_URL = "redis://localhost:6379"

TIMEOUT_SECONDS = 10.0
"""Maximum time to wait for a reply of the store, in seconds."""

Url = Annotated[
    str,
    Option(envvar=["HEADWATER_URL", "REDIS_URL"], metavar="URL", help="Address of the store."),
]


AllGroups = Annotated[
    bool,
    Option(
        "--all-groups",
        help="Add deleted entries again even if other groups of the stream will also read them.",
    ),
]


def query(url: str, operation: Operation[T], *, creates: bool = False, waits: bool = False) -> T:
    """Run an operation on the store at ``url`` and return its result. With ``creates``, a ``headwater:///`` url may
    name a directory without a store. With ``waits``, progress is not shown, as the operation awaits new entries.

    Raises `HeadwaterError` if the store cannot be reached, and the errors of the operation.
    """
    from headwater.groups.protocol.operation import run

    with _client(url, creates=creates) as client, Busy("requests answered", silent=waits) as busy:
        return run(client, _counted(operation, busy))


def _counted(operation: Operation[T], busy: Busy) -> Operation[T]:
    """Run an operation and count its requests."""
    try:
        commands = next(operation)
        while True:
            replies = yield commands
            busy.add(len(commands))
            commands = operation.send(replies)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        operation.close()


TOGETHER = 100
"""Maximum number of operations that run together."""


def query_together(url: str, operations: Iterable[Operation[T]]) -> list[T]:
    """Run independent operations, many at a time. Return their results in order. Raises what `query` raises."""
    from headwater.groups.protocol.operation import batched, run_together

    found: list[T] = []
    with _client(url) as client, Busy("requests answered") as busy:
        for part in batched(operations, TOGETHER):
            found += run_together(client, [_counted(one, busy) for one in part])
    return found


def _check_store(url: str) -> None:
    """Raise `HeadwaterError` if ``url`` names a directory without a store, because queries must not create one."""
    if not url.startswith("headwater:"):
        return
    from headwater.client.embedded_url import parse_embedded
    from headwater.journal.disk.regular import check_readable, has_store

    directory = parse_embedded(url).directory
    if directory is None:
        return
    check_readable(directory)
    if not has_store(directory):
        raise HeadwaterError(f"there is no store in {directory}. Check the path.")


def _check_host(url: str) -> None:
    """Raise `HeadwaterError` if a host of a server's url cannot be one, such as ``store..internal`` or ``[::1``."""
    from urllib.parse import urlsplit

    from headwater.client.redaction import redacted

    if url.startswith("headwater:"):
        return
    try:
        places = urlsplit(url).netloc.rpartition("@")[2].split(",")
        for place in places:
            (urlsplit(f"//{place}").hostname or "").encode("idna")
    except ValueError as error:
        raise HeadwaterError(
            f"{redacted(url)!r} cannot be parsed: its host is wrong: {error}. Check the name, and write an IPv6 "
            "address in brackets, such as [::1]"
        ) from None


@contextmanager
def _client(url: str, *, creates: bool = False) -> Iterator[redis.Redis | DirectConnection]:
    from headwater.client.redaction import redacted
    from headwater.groups.protocol.operation import Refused

    _check_host(url)
    try:
        with _direct(url) or _redis_py(url, creates=creates) as client:
            yield client
    except (OSError, Disconnected, StoreClosed) as error:
        raise _unreachable(url, error) from error
    except Refused as error:
        if error.code in _REASONS:
            raise HeadwaterError(f"{redacted(url)} {_REASONS[error.code]}: {error}") from error
        raise HeadwaterError(f"{redacted(url)} refused the request: {error}") from error


_REASONS = {
    "WRONGPASS": "does not accept this user and password",
    "NOAUTH": "wants a password, as in redis://user:password@host",
}


def _unreachable(url: str, error: BaseException) -> Unreachable:
    """Return the error for a lost connection. If only one side uses TLS, the error says this."""
    from headwater.client.direct import tls_advice
    from headwater.client.redaction import redacted

    advice = tls_advice(url)
    return Unreachable(f"{redacted(url)} cannot be reached: {advice or error}")


def _direct(url: str) -> closing[DirectConnection] | None:
    """Connect without redis-py, to start faster. Return None if the url or a cluster requires redis-py."""
    from headwater.client.direct import DirectConnection, NotDirect, is_direct
    from headwater.groups.protocol.operation import refused

    if not is_direct(url):
        return None
    try:
        return closing(DirectConnection(url, seconds=TIMEOUT_SECONDS, refused=refused))
    except NotDirect:
        return None


@contextmanager
def _redis_py(url: str, *, creates: bool) -> Iterator[redis.Redis]:
    from redis.exceptions import RedisError

    from headwater.client.redaction import redacted
    from headwater.groups.protocol.operation import Refused
    from headwater.groups.protocol.store_errors import lost_connection, refused_credentials
    from headwater.worker.store.connections import Connections

    if not creates:
        _check_store(url)
    try:
        with closing(Connections(url).synchronous(deadline_s=TIMEOUT_SECONDS)) as client:
            yield client
    except refused_credentials() as error:
        wrong = "invalid" in str(error)  # redis-py removes the code
        raise Refused(str(error), "WRONGPASS" if wrong else "NOAUTH") from error
    except lost_connection() as error:
        raise _unreachable(url, error) from error
    except RedisError as error:  # from a parameter of the url, such as ssl_cert_reqs
        raise HeadwaterError(f"{redacted(url)} cannot be used: {error}") from error
