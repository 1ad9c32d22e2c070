"""A lease on the consumer's name, so that only one query uses it at a time.

Two queries with the same name would each treat the other's pending entries as their own. The lease is a key
for each stream, ``{orders}:hw:reader:<group>:<consumer>``. A query that finds the name leased waits for the
length of one lease, in which a dead query's lease expires. If the name is still leased then, the query fails.

Rule 1. Only the query that has the lease, according to the key's value, renews or deletes the key.
Rule 2. The lease only prevents confusion. Settlements are owner-checked, so a query that is wrongly believed
        dead loses no entry.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Script, run

if TYPE_CHECKING:
    import redis

_IF_MINE: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
""")

LONGEST_LEASE_MS: Final = 10_000
"""Maximum length of a lease. A query waits for its end if its predecessor did not release the name."""

SHORTEST_LEASE_MS: Final = 1_000
_GRACE_SECONDS: Final = 0.2


def lease_ms(claim_after_ms: int) -> int:
    """Return the length of a lease of the name, in milliseconds."""
    return max(SHORTEST_LEASE_MS, min(LONGEST_LEASE_MS, claim_after_ms))


class NameLease:
    """Leases a consumer's name with several keys; thread-safe."""

    def __init__(self, consumer: str, lease: int) -> None:
        self._consumer = consumer
        self._lease_ms = lease
        self._keys: list[str] = []
        self._token = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._renewed_at = 0.0
        self._lost: str | None = None

    @property
    def seconds(self) -> float:
        """The length of the lease in seconds."""
        return self._lease_ms / 1000

    def take(self, client: redis.Redis, key: str) -> None:
        """Also lease ``key``. If another query has it, wait for the length of one lease.

        Raises `HeadwaterError`, naming the other query, if that query still has the key then.
        """
        if key in self._keys:
            return
        patience = time.monotonic() + self.seconds + _GRACE_SECONDS
        while not self._set(client, key):
            holder = _text(client.get(key))
            if holder == self._token:
                break  # the reply to the first attempt was lost
            if time.monotonic() > patience:
                raise HeadwaterError(_held(self._consumer, key, holder))
            time.sleep(min(0.1, self.seconds / 10))
        with self._lock:
            self._keys.append(key)
            self._renewed_at = time.monotonic()

    def renew(self, client: redis.Redis) -> None:
        """Renew the lease, except for keys that another query has taken."""
        with self._lock:
            asked_at = time.monotonic()
            for key in self._keys:
                if not self._renewed(client, key):
                    holder = _text(client.get(key))
                    if holder != self._token:
                        self._lost = self._lost or _held(self._consumer, key, holder)
            self._renewed_at = asked_at

    def check(self, client: redis.Redis) -> None:
        """Raise `HeadwaterError` if another query has the name. Renews the lease if half of it has passed."""
        if time.monotonic() - self._renewed_at > self.seconds / 2:
            self.renew(client)
        if self._lost is not None:
            raise HeadwaterError(self._lost)

    def release(self, client: redis.Redis) -> None:
        """Give up the lease, so that the next query does not wait."""
        with self._lock:
            keys, self._keys = self._keys, []
            for key in keys:
                self._if_mine(client, key, "DEL", key)

    def _set(self, client: redis.Redis, key: str) -> bool:
        return bool(client.set(key, self._token, nx=True, px=self._lease_ms))

    def _renewed(self, client: redis.Redis, key: str) -> bool:
        if self._if_mine(client, key, "PEXPIRE", key, self._lease_ms):
            return True
        # The lease expired, because the store was unreachable or this process paused, but was not taken.
        return self._set(client, key)

    def _if_mine(self, client: redis.Redis, key: str, *command: str | int) -> bool:
        """Run ``command`` if this query has ``key``, with the check in the same step; return whether it did."""
        from redis.exceptions import WatchError

        from headwater.client.sync.cluster import ClusterClient

        if isinstance(client, ClusterClient):  # it has no WATCH, and its servers have Lua
            return bool(run(client, _IF_MINE.call([key], [self._token, command[0], *command[2:]])))
        with client.pipeline(transaction=True) as pipeline:
            pipe: Any = pipeline
            pipe.watch(key)
            if _text(pipe.get(key)) != self._token:
                return False
            pipe.multi()
            pipe.execute_command(*command)
            try:
                return bool(pipe.execute()[0])
            except WatchError:
                return False


def _held(consumer: str, key: str, holder: str | None) -> str:
    return (
        f"consumerPrefix: another query reads as {consumer!r} (the key {key} is held by {holder}). "
        "Only one query at a time may use a consumer's name: stop that query, or set another "
        "consumerPrefix here; then both share the group."
    )


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
