"""Connects to the store, and waits a limited time when the connection is lost.

Rule 1. A command that failed because of a lost connection is repeated for up to `PATIENCE_SECONDS`, on a cluster
        `CLUSTER_PATIENCE_SECONDS`. After that `Disconnected` is raised, with the url but without its password.
        Every function that `patiently` calls must be safe to run twice.
Rule 2. All connections use RESP2: every server sends the same replies, and no push messages arrive between the
        pages that an executor reads.
Rule 3. A cluster's client follows moved slots by itself. The client of `connect_to_owner` is connected to one node
        of a cluster, and follows a moved slot when it connects again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.client.redaction import redacted
from headwater.client.server_url import is_cluster
from headwater.errors import Disconnected, HeadwaterError
from headwater.groups.protocol.operation import Refused

if TYPE_CHECKING:
    import redis

T = TypeVar("T")

PATIENCE_SECONDS: Final = 5.0
"""Maximum time for which a server may be unreachable while a batch is planned or read: enough for a restart."""

CLUSTER_PATIENCE_SECONDS: Final = 30.0
"""The same time for a cluster, in seconds. A failover begins after the cluster's node timeout, by default 15 s."""

_FIRST_PAUSE: Final = 0.1
_TIMEOUT_SECONDS: Final = 60.0
"""Maximum time for one reply, in seconds. Large entries on a slow connection, or another Lua call, delay it."""

_CHANGING: Final = ("CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")
"""Errors after which a cluster will soon be able to execute the command."""


def connect(url: str) -> redis.Redis:
    """Return a client of the server or cluster at ``url``. The client does not retry; use `patiently`."""
    from headwater.client.sync.connect import connect as connect_to

    return connect_to(url, **_options())


def connect_to_owner(url: str, key: str) -> redis.Redis:
    """Return a client of the server at ``url`` or, for a cluster, of the node that owns ``key``."""
    if not is_cluster(url):
        return connect(url)
    from headwater.client.sync.owner import OwnerClient

    return OwnerClient(url, key, **_options())


def _options() -> dict[str, Any]:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": _TIMEOUT_SECONDS,
        "socket_connect_timeout": PATIENCE_SECONDS,
    }


def patiently(url: str, ask: Callable[[], T]) -> T:
    """Call ``ask``, and repeat it while the server is unreachable or the cluster changes, for some seconds.

    Raises `Disconnected` if the server stays unreachable, and `HeadwaterError` for an error reply.
    """
    import redis

    clustered = is_cluster(url)
    deadline = time.monotonic() + (CLUSTER_PATIENCE_SECONDS if clustered else PATIENCE_SECONDS)
    pause = _FIRST_PAUSE
    while True:
        try:
            return ask()
        except redis.AuthenticationError as error:
            raise HeadwaterError(f"{redacted(url)} refused the password: {error}") from None
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            failure: Exception = error
        except Refused as error:
            if not (clustered and error.code in _CHANGING):
                raise
            failure = error
        except redis.ResponseError as error:
            if clustered and _is_changing(error):
                failure = error
            elif isinstance(error, redis.exceptions.AskError):
                raise HeadwaterError(_node_of_cluster(url)) from None
            else:
                raise HeadwaterError(f"{redacted(url)} answered: {error}") from error
        if time.monotonic() + pause > deadline:
            # `from None`: redis-py's chain of causes would print stack frames without information.
            raise Disconnected(
                f"cannot reach the store at {redacted(url)}: {str(failure).rstrip('.')}. Is it running "
                "there (headwater serve), and is the url right?"
            ) from None
        time.sleep(pause)
        pause = min(pause * 2, 1.0)


def _is_changing(error: redis.ResponseError) -> bool:
    import redis

    return (
        isinstance(error, redis.exceptions.AskError)
        or str(error).startswith(_CHANGING)
        or isinstance(
            error,
            redis.exceptions.ClusterDownError
            | redis.exceptions.TryAgainError
            | redis.exceptions.MasterDownError,
        )
    )


def _node_of_cluster(url: str) -> str:
    scheme, _, rest = redacted(url).partition("://")
    return (
        f"{redacted(url)} is a node of a cluster, which has only a part of the streams: write "
        f"{scheme}+cluster://{rest}"
    )


def refuse_node(url: str, client: redis.Redis) -> None:
    """Raise `HeadwaterError` if ``url`` names one node of a cluster, where a search finds only part of the streams."""
    import redis

    if is_cluster(url):
        return
    try:
        found: Any = client.info("cluster")
    except redis.ResponseError:
        return  # INFO is not permitted, so this cannot be checked
    if isinstance(found, dict) and found.get("cluster_enabled"):
        raise HeadwaterError(_node_of_cluster(url))
