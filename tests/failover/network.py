"""Network namespaces for a primary, its replicas, Sentinels and clients, and partitions between them.

    with network(["member-1", "member-2", "clients-1"]) as net:
        net.command("member-1", ["redis-server", …])   # the same, to be run in the namespace
        net.cut(["member-1"], ["member-2"])            # neither reaches the other
        net.cut(["member-1"], ["member-2"], one_way=True)
        net.heal()

Each side has a namespace with one interface, and all interfaces are on one bridge. The bridge has an address of its
own, at which the harness itself reaches every side; it is never cut off.

A cut takes effect where a packet is sent. There are two kinds, and real networks have both: `Loss.REFUSED` is a
blackhole route, and the sender gets an error at once when it connects; `Loss.SILENT` sends the packets to a
hardware address that nobody has, and the sender learns nothing.

All names have the process id of the harness, and all are removed at the end. Without the rights for namespaces,
`network` runs everything on 127.0.0.1, says so, and `Network.can_cut` is False.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final

from tests import peers

SERVICE_PORT: Final = 6379
"""The port of a server in its own namespace. On 127.0.0.1 each side has a free port instead."""

NOWHERE: Final = "02:00:00:00:00:fe"
"""A hardware address that no interface has."""

OWN_HOST: Final = 254
"""The number of the harness in the network."""


class Loss(Enum):
    """What happens to the packets of a cut link."""

    REFUSED = "refused"
    SILENT = "silent"


def ip(*words: str, check: bool = True) -> str:
    """Run ``ip`` and return its output. Raises `OSError` with what it has printed."""
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=20)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def permitted() -> bool:
    """Whether this process may make namespaces, bridges and pairs of interfaces."""
    name = f"hwt{os.getpid()}"
    try:
        ip("netns", "add", name)
        try:
            ip("link", "add", name, "type", "bridge")
            ip("link", "del", name)
        finally:
            ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class Network:
    """Sides that can be cut off from each other."""

    def __init__(self, sides: Sequence[str], *, can_cut: bool) -> None:
        self.sides = list(sides)
        self.can_cut = can_cut
        """False on 127.0.0.1, where there is one network for all."""
        self._id = os.getpid()
        self._bridge = f"hwb{self._id}"
        self._subnet = f"10.{200 + self._id % 50}.{self._id // 50 % 250}"
        self._ports = dict.fromkeys(sides, 0)
        self._cuts: set[tuple[str, str, Loss]] = set()

    def build(self) -> None:
        """Make the namespaces, or choose ports on 127.0.0.1."""
        if not self.can_cut:
            self._ports = {side: peers.free_port() for side in self.sides}
            return
        ip("link", "add", self._bridge, "type", "bridge")
        ip("address", "add", f"{self._subnet}.{OWN_HOST}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for number, side in enumerate(self.sides, 1):
            self._add(side, number)

    def _add(self, side: str, number: int) -> None:
        name, inside, outside = self.namespace(side), "eth0", self._outside(number)
        ip("netns", "add", name)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        ip("link", "set", outside, "master", self._bridge)
        ip("link", "set", outside, "up")
        within = ("-n", name)
        ip(*within, "address", "add", f"{self._subnet}.{number}/24", "dev", inside)
        ip(*within, "link", "set", "lo", "up")
        ip(*within, "link", "set", inside, "up")
        # Otherwise the kernel drops what comes from an address to which this side has a blackhole route.
        for interface in ("all", inside):
            setting = f"/proc/sys/net/ipv4/conf/{interface}/rp_filter"
            command = ["ip", "netns", "exec", name, "sh", "-c", f"echo 0 > {setting}"]
            subprocess.run(command, check=True, capture_output=True, timeout=20)

    def remove(self) -> None:
        """Remove everything that `build` made, also what it made before it failed."""
        if not self.can_cut:
            return
        existing = {
            line.split()[0] for line in ip("netns", "list", check=False).splitlines() if line
        }
        for number, side in enumerate(self.sides, 1):
            # The kernel keeps a namespace while connections in it are being closed, and with it the interfaces, whose
            # names the next network takes.
            ip("link", "del", self._outside(number), check=False)
            if self.namespace(side) in existing:
                ip("netns", "del", self.namespace(side), check=False)
        ip("link", "del", self._bridge, check=False)

    def _outside(self, number: int) -> str:
        """The interface on the bridge of a side."""
        return f"hwv{self._id}n{number}"

    def namespace(self, side: str) -> str:
        """The name of the namespace of a side."""
        return f"hw{self._id}-{side}"

    def host(self, side: str) -> str:
        """The address of a side."""
        if not self.can_cut:
            return "127.0.0.1"
        return f"{self._subnet}.{self.sides.index(side) + 1}"

    def port(self, side: str) -> int:
        """The port on which the server of a side listens."""
        return self._ports[side] or SERVICE_PORT

    def command(self, side: str, words: Sequence[str]) -> list[str]:
        """Return a command that runs ``words`` on a side. The process keeps its id: ``ip`` replaces itself."""
        if not self.can_cut:
            return list(words)
        return ["ip", "netns", "exec", self.namespace(side), *words]

    def cut(
        self,
        some: Sequence[str],
        others: Sequence[str],
        *,
        one_way: bool = False,
        loss: Loss = Loss.REFUSED,
    ) -> None:
        """Lose all packets from ``some`` to ``others``, and also those back unless it is ``one_way``."""
        assert self.can_cut, "there are no partitions on 127.0.0.1"
        for source in some:
            for target in others:
                self._lose(source, target, loss)
                if not one_way:
                    self._lose(target, source, loss)

    def _lose(self, source: str, target: str, loss: Loss) -> None:
        if source == target or (source, target, loss) in self._cuts:
            return
        self._cuts.add((source, target, loss))
        within, host = ("-n", self.namespace(source)), self.host(target)
        if loss is Loss.REFUSED:
            ip(*within, "route", "add", "blackhole", f"{host}/32")
        else:
            place = (host, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
            ip(*within, "neighbour", "replace", *place)

    def heal(self) -> None:
        """End all cuts."""
        for source, target, loss in sorted(self._cuts, key=str):
            within, host = ("-n", self.namespace(source)), self.host(target)
            if loss is Loss.REFUSED:
                ip(*within, "route", "del", "blackhole", f"{host}/32")
            else:
                ip(*within, "neighbour", "del", host, "dev", "eth0")
            self._cuts.discard((source, target, loss))


@contextmanager
def network(sides: Sequence[str], *, loopback: bool = False) -> Iterator[Network]:
    """Make a network, and remove it at the end. ``loopback`` uses 127.0.0.1 even if namespaces are permitted."""
    can_cut = not loopback and permitted()
    if not can_cut:
        print(
            "without namespaces: everything runs on 127.0.0.1, and there are no partitions",
            flush=True,
        )
    net = Network(sides, can_cut=can_cut)
    try:
        net.build()
        yield net
    finally:
        net.remove()
