"""A client of the node that owns one key. Unlike a cluster's client, it has WATCH, transactions and raw replies.

Rule 1. Each new connection asks the cluster for the owner, so reconnecting follows moved slots and failovers.
Rule 2. After a redirection, the next command connects again. The caller receives the redirection, which means
        that the command did not run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from redis.connection import AbstractConnection
from redis.exceptions import AskError, ClusterDownError

from headwater.client.cluster_calls import LOST
from headwater.client.drivers import run
from headwater.client.guarded import derived
from headwater.client.sync.client import Client
from headwater.client.sync.cluster import ClusterClient
from headwater.client.sync.connect import connect
from headwater.client.sync.sentinel import MovingConnection


class OwnerConnection(MovingConnection):
    """The base class that `to_owner` puts before a connection class."""

    errors = (AskError, ClusterDownError)

    def __init__(self, *args: Any, cluster: ClusterClient, key: str, **kwargs: Any) -> None:
        self._cluster = cluster
        self._key = key
        super().__init__(*args, **kwargs)

    def _connect(self) -> Any:
        node = run(self._cluster.calls.owner(self._key))
        self.host, self.port = node
        try:
            return super()._connect()
        except LOST:
            self._cluster.calls.doubt(node)  # the next attempt asks another node first
            raise


@cache
def to_owner(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``connection_class`` with `OwnerConnection` as its first base."""
    return derived("Owner", OwnerConnection, connection_class)


class OwnerClient(Client):
    """A client of the node that owns ``key`` in the cluster at ``url``."""

    def __init__(self, url: str, key: str, **options: Any) -> None:
        self._cluster = connect(url, **options)
        assert isinstance(self._cluster, ClusterClient), "a cluster's url"
        pool = self._cluster.connection_pool
        made = type(pool)(
            connection_class=to_owner(pool.connection_class),
            cluster=self._cluster,
            key=key,
            **pool.connection_kwargs,
        )
        super().__init__(connection_pool=made)
        self.auto_close_connection_pool = True

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._cluster.close()
