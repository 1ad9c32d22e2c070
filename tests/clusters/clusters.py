"""Starts real clusters and Sentinels, from the binaries of `tests.peers`.

with cluster("redis-8.2") as found:      # three shards of two nodes each, in about two seconds
    found.url                            # redis+cluster://127.0.0.1:…,…

With certificates, the nodes use TLS among themselves and with clients of the url. The test's own connections
use no TLS; `plain_clients` does not list them.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import redis
from redis.crc import key_slot

from tests import peers
from tests.certificates import Certificates
from tests.waiting import eventually

NODE_TIMEOUT_MS = 1_500
PERIOD_MS = 500
"""How often Sentinels query their servers and exchange what they know."""
OWN_CONNECTION = "test-looks"
OURS = "headwater"
"""The name of our own server, where others are named as in `tests.peers`."""

SHARDS = 3
SLOTS = 16_384

WON = re.compile(r"(\d+ \w{3} \d{4} [\d:.]+) . Failover election won")
"""A node's log line about an election, with the time."""


def _url(kind: str, servers: list[Server], made: Certificates | None, path: str = "") -> str:
    places = ",".join(f"127.0.0.1:{one.open_port}" for one in servers)
    if made is None:
        return f"redis+{kind}://{places}{path}"
    return f"rediss+{kind}://{places}{path}?{urlencode(made.client_options)}"


until = partial(eventually, passing=(redis.ConnectionError,))


class Server:
    """One process, and the test's own connection to it."""

    def __init__(self, peer: peers.Peer) -> None:
        self.peer = peer
        self.client = redis.Redis(
            port=peer.port, socket_timeout=5, protocol=2, client_name=OWN_CONNECTION
        )

    @property
    def port(self) -> int:
        return self.peer.port

    @property
    def open_port(self) -> int:
        """The port for clients other than the test: the TLS port, if the server has one."""
        if "--tls-port" not in self.peer.arguments:
            return self.port
        return int(self.peer.arguments[self.peer.arguments.index("--tls-port") + 1])

    def plain_clients(self) -> list[str]:
        """Clients without TLS that are not the test's own connection."""
        rows = self.ask("CLIENT", "LIST").decode().splitlines()
        return [
            row for row in rows if f":{self.port} " in row and f"name={OWN_CONNECTION} " not in row
        ]

    def ask(self, *words: str | bytes | int) -> Any:
        """Send a command and return the reply as the server sent it."""
        first = str(words[0]).encode()
        execute: Any = self.client.execute_command
        return execute(first, *words[1:])

    def kill(self) -> None:
        """End it by SIGKILL, as the kernel does when memory runs out."""
        self.peer.kill()

    def close(self) -> None:
        self.client.close()
        self.peer.stop()


def _tls_flags(made: Certificates | None) -> list[str]:
    """Command-line flags for a server with a separate TLS port."""
    if made is None:
        return []
    return [*made.flags(tls_port=peers.free_port()), "--tls-replication", "yes"]


def _started(name: str, arguments: list[str], directory: Path) -> Server:
    directory.mkdir()
    if name == OURS:
        return Server(_headwater(arguments, directory))
    return Server(peers.start(name, *arguments, directory=directory))


def _headwater(arguments: list[str], directory: Path) -> peers.Peer:
    """Start one of our servers, with a configuration file that Sentinel lets it rewrite."""
    port, settings = peers.free_port(), directory / "headwater.conf"
    settings.write_text(f"port {port}\nbind 127.0.0.1\ndir {directory / 'data'}\n")
    command = [sys.executable, "-m", "headwater", "serve", "--config", str(settings), *arguments]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    server = Server(peers.Peer(OURS, process, port, directory, arguments=command))
    until(lambda: server.ask("PING"), "a server answers")
    server.client.close()
    return server.peer


def _sentinel(name: str, primary: Server, directory: Path, *, made: Certificates | None) -> Server:
    """Start a Sentinel that monitors ``primary`` as ``shop``. It writes what it learns to its file."""
    executable = peers.path(name)
    if executable is None:
        raise peers.PeerMissing(name)
    directory.mkdir()
    port = peers.free_port()
    settings = directory / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor shop 127.0.0.1 {primary.open_port} 2\n"
        "sentinel down-after-milliseconds shop 1000\n"
        "sentinel failover-timeout shop 3000\n"
    )
    command = [str(executable), str(settings), "--sentinel", *_tls_flags(made)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )
    server = Server(peers.Peer(name, process, port, directory, arguments=command))
    until(lambda: server.ask("PING"), "a Sentinel answers")
    # By default a Sentinel queries its servers every ten seconds, and demotes an old primary after eight.
    server.ask("SENTINEL", "DEBUG", "info-period", PERIOD_MS, "publish-period", PERIOD_MS)
    return server


@dataclass
class Cluster:
    """Nodes of one cluster. The first three started as primaries, the others as their replicas."""

    name: str
    nodes: list[Server] = field(default_factory=list)
    made: Certificates | None = None

    @property
    def url(self) -> str:
        return _url("cluster", self.nodes[:SHARDS], self.made)

    def by_port(self, port: int) -> Server:
        return next(node for node in self.nodes if node.port == port)

    def running_nodes(self) -> list[Server]:
        return [node for node in self.nodes if node.peer.process.poll() is None]

    def rows(self) -> list[list[str]]:
        """The rows of CLUSTER NODES, from the first running node."""
        text = self.running_nodes()[0].ask("CLUSTER", "NODES").decode()
        return [line.split() for line in text.splitlines()]

    def owner(self, key: str) -> Server:
        """The primary of a key's slot."""
        slot = key_slot(key.encode())
        reply = self.running_nodes()[0].ask("CLUSTER", "SLOTS")
        return next(self.by_port(row[2][1]) for row in reply if row[0] <= slot <= row[1])

    def replica(self, key: str) -> Server:
        """A replica of a key's slot. Waits for one that has just started."""
        slot = key_slot(key.encode())

        def found() -> Server | None:
            for row in self.running_nodes()[0].ask("CLUSTER", "SLOTS"):
                if row[0] <= slot <= row[1] and len(row) > 3:
                    return self.by_port(row[3][1])
            return None

        replica: Server = until(found, "the shard has a replica")
        return replica

    def other(self, key: str) -> Server:
        """A primary that does not own a key's slot."""
        own = self.owner(key)
        reply = self.running_nodes()[0].ask("CLUSTER", "SLOTS")
        return next(self.by_port(row[2][1]) for row in reply if row[2][1] != own.port)

    def move(
        self, key: str, *, between: Callable[[], None] = lambda: None, first: str | None = None
    ) -> None:
        """Move a key's slot to another primary while it is in use, the key ``first`` before the others.
        ``between`` is called when the slot is marked as moving and after each key."""
        until(self.agreed, "all nodes agree on the owners of the slots")
        source, target, slot = self.owner(key), self.other(key), key_slot(key.encode())
        source_id, target_id = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        between()
        if first is not None:
            source.ask("MIGRATE", "127.0.0.1", target.open_port, first, 0, 30_000)
            between()
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", "127.0.0.1", target.open_port, keys[0], 0, 30_000)
            between()
        target.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        source.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        for node in self.running_nodes():
            if node not in (source, target):
                try:
                    node.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
                except redis.ResponseError:
                    pass  # a replica learns the owner by itself

    def reset(self) -> None:
        """Start killed nodes, wait until the cluster is healthy, and empty every primary."""
        for node in self.nodes:
            if node not in self.running_nodes():
                self.restart(node)
        until(self.healthy, "every shard has its replica")
        for row in self.running_nodes()[0].ask("CLUSTER", "SLOTS"):
            node = self.by_port(row[2][1])
            node.ask("FLUSHALL")
            node.ask("SCRIPT", "FLUSH")

    def agreed(self) -> bool:
        """Whether all nodes name the same primaries."""
        views = {
            tuple(sorted((row[0], row[1], row[2][1]) for row in node.ask("CLUSTER", "SLOTS")))
            for node in self.running_nodes()
        }
        return len(views) == 1

    def healthy(self) -> bool:
        """Whether every node is up and every replica follows its primary."""
        for node in self.nodes:
            info = node.ask("CLUSTER", "INFO")
            role = node.ask("ROLE")
            if b"cluster_state:ok" not in info:
                return False
            if role[0] == b"slave" and role[3] != b"connected":
                return False
            if role[0] == b"master" and len(role[2]) != 1:
                return False
        return True

    def can_fail_over(self) -> bool:
        """Whether another failover of a shard may be started.

        For two node timeouts, a replica of Redis that won an election counts the votes of that election
        for the next one (github.com/redis/redis/issues/8752, open). If its primary is down by then, it
        claims the slots with an old epoch, the other nodes reject the claim, and the shard has no primary
        until the old one is back. Valkey discards the votes (valkey-io/valkey#1711).
        """
        if not self.name.startswith("redis"):
            return True
        times = [time for node in self.running_nodes() for time in WON.findall(node.peer.log())]
        won = [dt.datetime.strptime(one, "%d %b %Y %H:%M:%S.%f").astimezone() for one in times]
        rest = dt.timedelta(milliseconds=2.5 * NODE_TIMEOUT_MS)
        return not won or dt.datetime.now(dt.UTC) - max(won) > rest

    def restart(self, node: Server) -> None:
        """Start a killed node again. Its directory holds its view of the cluster."""
        arguments = node.peer.arguments[node.peer.arguments.index("--cluster-enabled") :]
        node.peer = peers.start(
            self.name, *arguments, directory=node.peer.directory, port=node.peer.port
        )


def _assembled(found: Cluster) -> None:
    """Join nodes that do not know each other into one cluster."""
    first = found.nodes[0]
    width = SLOTS // SHARDS
    for n, node in enumerate(found.nodes):
        if n < SHARDS:
            last = SLOTS - 1 if n == SHARDS - 1 else (n + 1) * width - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", n * width, last)
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        bus = node.peer.arguments[node.peer.arguments.index("--cluster-port") + 1]
        if node is not first:
            first.ask("CLUSTER", "MEET", "127.0.0.1", node.open_port, int(bus))
    count = f"cluster_known_nodes:{len(found.nodes)}".encode()
    for node in found.nodes:
        until(lambda: count in node.ask("CLUSTER", "INFO"), "nodes meet")  # noqa: B023
    for n, node in enumerate(found.nodes[SHARDS:]):
        primary: bytes = found.nodes[n].ask("CLUSTER", "MYID")

        def follows() -> bool:
            try:
                node.ask("CLUSTER", "REPLICATE", primary)  # noqa: B023
            except redis.ResponseError:
                return False  # the node does not know the primary as one yet
            return True

        until(follows, "a replica follows")
    until(found.healthy, "the cluster is complete")


@contextmanager
def cluster(name: str, *, made: Certificates | None = None) -> Iterator[Cluster]:
    """Start a cluster of three shards with a replica each; with certificates, over TLS."""
    directory = Path(tempfile.mkdtemp(prefix="hw-cluster-"))
    found = Cluster(name, made=made)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for n in range(2 * SHARDS):
            arguments = [
                *("--cluster-enabled", "yes", "--cluster-port", str(peers.free_port())),
                *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
                *("--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no"),
                *("--repl-ping-replica-period", "1", *_tls_flags(made)),
                *(("--tls-cluster", "yes") if made else ()),
            ]
            node = _started(name, arguments, directory / str(n))
            stack.callback(node.close)
            found.nodes.append(node)
        _assembled(found)
        yield found


@dataclass
class Sentinels:
    """Three Sentinels, a primary and two replicas of the service ``shop``."""

    name: str
    servers: list[Server] = field(default_factory=list)
    sentinels: list[Server] = field(default_factory=list)
    made: Certificates | None = None

    @property
    def url(self) -> str:
        return _url("sentinel", self.sentinels, self.made, "/shop")

    def primary(self) -> Server:
        """The primary according to the Sentinels."""
        for sentinel in self.sentinels:
            try:
                _host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")
            except redis.ConnectionError:
                continue
            return next(one for one in self.servers if one.open_port == int(port))
        raise AssertionError("no Sentinel answers")

    def complete(self) -> bool:
        """Whether every Sentinel knows both replicas and both other Sentinels, and the replicas follow."""
        for sentinel in self.sentinels:
            (words,) = sentinel.ask("SENTINEL", "MASTERS")
            about = dict(zip(words[::2], words[1::2], strict=True))
            if about[b"num-slaves"] != b"2" or about[b"num-other-sentinels"] != b"2":
                return False
        return len(self.primary().ask("ROLE")[2]) == 2


@contextmanager
def sentinels(
    name: str, *, made: Certificates | None = None, servers: str = ""
) -> Iterator[Sentinels]:
    """Start three Sentinels and the three servers that they monitor, of the kind ``servers`` if that is given; with
    certificates, over TLS."""
    directory = Path(tempfile.mkdtemp(prefix="hw-sentinels-"))
    found = Sentinels(name, made=made)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for n in range(3):
            arguments = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
            arguments += _tls_flags(made)
            if n:
                arguments += ["--replicaof", f"127.0.0.1 {found.servers[0].open_port}"]
            server = _started(servers or name, arguments, directory / f"server-{n}")
            stack.callback(server.close)
            found.servers.append(server)
        for n in range(3):
            sentinel = _sentinel(name, found.servers[0], directory / f"sentinel-{n}", made=made)
            stack.callback(sentinel.close)
            found.sentinels.append(sentinel)
        until(found.complete, "the Sentinels know each other and the servers")
        yield found
