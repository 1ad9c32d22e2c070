"""Parses the urls of servers: one server, the nodes of a cluster, or Sentinels and their service.

    redis://host:port/db            one server; rediss:// over TLS; valkey:// and valkeys:// the same
    redis+cluster://host:port,host:port          a cluster, by some of its nodes; rediss+cluster://
    redis+sentinel://host:port,host:port/service/db      the primary that Sentinels name;
                                                         rediss+sentinel://

``user:password@`` before the hosts is for the servers. Parameters after ``?`` are redis-py's;
``sentinel_username`` and ``sentinel_password`` are for the Sentinels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from headwater.client.redaction import redacted
from headwater.common.addresses import address_text
from headwater.errors import ConfigError

ALIASES: Final = {"valkey": "redis", "valkeys": "rediss"}

SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    *ALIASES,
    *(
        f"{base}+{kind}"
        for base in ("redis", "rediss", *ALIASES)
        for kind in ("cluster", "sentinel")
    ),
)
"""All schemes of servers."""

SERVER_EXAMPLES: Final = "redis://…, rediss://…, unix://…, redis+cluster://…, redis+sentinel://…"
"""Forms of the urls of servers, for errors. ``valkey`` may replace ``redis``."""

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_SENTINEL_PARAMETERS: Final = ("sentinel_username", "sentinel_password")


class NodeAddress(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


@dataclass(frozen=True)
class ClusterAddress:
    """Some nodes of a cluster. ``scheme``, ``user`` and ``query`` apply to all nodes of the cluster."""

    scheme: str
    user: str
    """``name:password@`` as in the url, or empty."""
    nodes: tuple[NodeAddress, ...]
    query: str

    def node_url(self, node: NodeAddress) -> str:
        """Return the url of one node.

        >>> parse_cluster("rediss+cluster://:secret@a:7000,b?protocol=2").node_url(NodeAddress("c", 7002))
        'rediss://:secret@c:7002?protocol=2'
        """
        return f"{self.scheme}://{self.user}{node}{'?' if self.query else ''}{self.query}"


@dataclass(frozen=True)
class SentinelAddress:
    """Sentinels, and the service whose primary they name."""

    nodes: tuple[NodeAddress, ...]
    service: str
    server_url: str
    """The url of the server, with a placeholder for its host."""
    username: str | None
    """User name for the Sentinels; None if the url has none. ``password`` is also for the Sentinels."""
    password: str | None
    tls: bool


def plain(url: str) -> str:
    """Return ``url`` with ``redis`` and ``rediss`` instead of their aliases.

    >>> plain("valkeys+cluster://host:7000"), plain("redis://host")
    ('rediss+cluster://host:7000', 'redis://host')
    """
    scheme, separator, rest = url.partition("://")
    base, plus, kind = scheme.partition("+")
    return f"{ALIASES.get(base, base)}{plus}{kind}{separator}{rest}"


def is_server(url: str) -> bool:
    """Return whether a url names servers, rather than an embedded store.

    >>> is_server("valkey://host"), is_server("redis+sentinel://host/shop"), is_server("headwater:///x")
    (True, True, False)
    """
    return url.partition("://")[0] in SCHEMES and "://" in url


def is_cluster(url: str) -> bool:
    """Return whether a url names a cluster."""
    return is_server(url) and url.partition("://")[0].endswith("+cluster")


def is_sentinel(url: str) -> bool:
    """Return whether a url names Sentinels."""
    return is_server(url) and url.partition("://")[0].endswith("+sentinel")


def may_be_node(url: str) -> bool:
    """Return whether a url names one server that may turn out to be a node of a cluster: it names
    database 0, the only database of a node.

    >>> may_be_node("redis://host:7000"), may_be_node("redis://host/2"), may_be_node("unix:///socket")
    (True, False, False)
    """
    parts = urlsplit(plain(url))
    if parts.scheme not in ("redis", "rediss") or parts.path.strip("/") not in ("", "0"):
        return False
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return bool(parts.netloc.rpartition("@")[2]) and database == "0" and "," not in parts.netloc


def parse_cluster(url: str) -> ClusterAddress:
    """Parse the url of a cluster, or of one of its nodes.

    >>> parse_cluster("redis+cluster://a:7000,b").nodes
    (NodeAddress(host='a', port=7000), NodeAddress(host='b', port=6379))

    Raises `ConfigError`.
    """
    parts = urlsplit(plain(url))
    if parts.path.strip("/") not in ("", "0"):
        raise ConfigError(
            f"{redacted(url)!r} names database {parts.path.strip('/')!r}, but a cluster has only "
            "database 0: remove it from the url"
        )
    user, nodes = _places(url, parts, REDIS_PORT)
    scheme = parts.scheme.partition("+")[0]
    return ClusterAddress(scheme, user, nodes, parts.query)


def parse_sentinel(url: str) -> SentinelAddress:
    """Parse the url of Sentinels.

    >>> found = parse_sentinel("redis+sentinel://app:pw@a,b:5000/shop/2?sentinel_password=s&protocol=2")
    >>> found.nodes, found.service, found.password
    ((NodeAddress(host='a', port=26379), NodeAddress(host='b', port=5000)), 'shop', 's')
    >>> found.server_url
    'redis://app:pw@primary:6379/2?protocol=2'

    Raises `ConfigError`.
    """
    parts = urlsplit(plain(url))
    user, nodes = _places(url, parts, SENTINEL_PORT)
    service, _, database = parts.path.strip("/").partition("/")
    if not service or (database and not database.isdecimal()):
        raise ConfigError(
            f"{redacted(url)!r} does not name a service: after the Sentinels write the name of the "
            "service and, if it is not 0, the number of the database, as in "
            "redis+sentinel://host:26379,host:26379/service/0"
        )
    scheme = parts.scheme.partition("+")[0]
    given = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in given if name in _SENTINEL_PARAMETERS}
    query = urlencode([(name, value) for name, value in given if name not in own])
    return SentinelAddress(
        nodes,
        unquote(service),
        f"{scheme}://{user}primary:{REDIS_PORT}/{database or 0}{'?' if query else ''}{query}",
        own.get("sentinel_username"),
        own.get("sentinel_password"),
        tls=scheme == "rediss",
    )


def _places(url: str, parts: SplitResult, port: int) -> tuple[str, tuple[NodeAddress, ...]]:
    """Return the user part, and the hosts with their ports."""
    user, at, places = parts.netloc.rpartition("@")
    nodes = tuple(_node(url, place, port) for place in places.split(","))
    return f"{user}{at}", nodes


def _node(url: str, place: str, port: int) -> NodeAddress:
    try:
        found = urlsplit(f"//{place}")
        host, given = found.hostname, found.port
    except ValueError:
        host, given = None, None
    if not host or (given is None and place.endswith(":")):
        raise ConfigError(
            f"{redacted(url)!r} cannot be parsed: write hosts as host:port, separated by commas, and "
            "percent-encode special characters in a password (%40 for @)"
        )
    return NodeAddress(host, port if given is None else given)
