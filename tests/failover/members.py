"""A primary, two replicas and three Sentinels, each on a side of a network.

with network(SIDES) as net, group(Setup("redis-8.2"), net, directory) as found:
    found.primary().kill()
    found.await_whole()

Members are ours or those of `tests.peers`; the Sentinels are always a peer's. The harness has its own connections,
which no partition affects.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests import peers
from tests.failover.network import Network

OURS: Final = "headwater"
SERVICE: Final = "shop"
"""The name under which the Sentinels know the group."""

MEMBERS: Final = ("member-1", "member-2", "member-3")
SENTINELS: Final = ("sentinel-1", "sentinel-2", "sentinel-3")
CLIENTS: Final = ("clients-1", "clients-2")
SIDES: Final = (*MEMBERS, *SENTINELS, *CLIENTS)

DOWN_AFTER_MS: Final = 1_000
FAILOVER_TIMEOUT_MS: Final = 3_000
PERIOD_MS: Final = 500
"""How often Sentinels query their servers and exchange what they know. By default it is ten seconds."""

START_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 30.0
"""How long a group may take until it is whole again. After that it is stuck."""

LOST: Final = (redis.RedisError, OSError)


@dataclass(frozen=True)
class Setup:
    """What is judged: a server and its settings, and what producers wait for."""

    server: str
    fsync: str = "everysec"
    synchronous: int = 0
    """``synchronous-replicas`` of Headwater."""
    min_replicas: int = 0
    """``min-replicas-to-write``."""
    wait: int = 0
    """Number of replicas for which clients wait with WAIT."""
    sentinel: str = ""
    """The peer whose Sentinels watch; by default the server's own, and those of redis-8.2 for Headwater."""

    @property
    def watcher(self) -> str:
        """The peer whose Sentinels watch."""
        return self.sentinel or ("redis-8.2" if self.server == OURS else self.server)

    @property
    def name(self) -> str:
        """The name of the setup in reports and in recorded runs."""
        words = [self.server, f"fsync {self.fsync}"]
        words += [f"synchronous {self.synchronous}"] if self.server == OURS else []
        words += [f"min-replicas {self.min_replicas}"] if self.min_replicas else []
        words += [f"WAIT {self.wait}"] if self.wait else []
        words += [f"Sentinel {self.sentinel}"] if self.sentinel else []
        return ", ".join(words)


class Process:
    """A server or a Sentinel on its side of the network. It keeps its configuration file and its data."""

    def __init__(self, side: str, net: Network, directory: Path, words: list[str]) -> None:
        self.side = side
        self.host = net.host(side)
        self.port = net.port(side)
        self.directory = directory
        self._command = net.command(side, words)
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(
            self.host,
            self.port,
            socket_timeout=5,
            socket_connect_timeout=2,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            client_name="harness",
        )

    def start(self) -> None:
        """Start it. It may not answer yet when this returns."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            )

    def await_answer(self) -> None:
        """Wait until it answers and has loaded its data."""
        until(lambda: self.ask("PING") == b"PONG", f"{self.side} answers", START_SECONDS)

    @property
    def runs(self) -> bool:
        """Whether the process exists; it may be paused."""
        return self._process is not None and self._process.poll() is None

    def ask(self, *words: str | bytes | int) -> Any:
        """Send a command and return the reply as it came: for names in bytes the client has no conversions."""
        execute: Any = self.client.execute_command
        return execute(str(words[0]).encode(), *words[1:])

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop it by SIGSTOP. Its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def show_stacks(self) -> None:
        """Let one of our servers write the stacks of its threads to its log."""
        if "tests.failover.server" in self._command:
            self._signal(signal.SIGRTMIN)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def info(self) -> dict[str, Any]:
        """The section ``replication`` of INFO."""
        found: Any = self.client.info("replication")
        return dict(found)

    def log(self) -> str:
        """What it has printed."""
        return (self.directory / "log").read_text(errors="replace")

    def close(self) -> None:
        """End it, and the connection to it."""
        with suppress(*LOST):
            self.client.close()
        self.kill()


def until(condition: Any, what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first true value of ``condition``. Lost connections and errors of servers count as false. Raises
    `TimeoutError`."""
    deadline = time.monotonic() + seconds
    why = ""
    while True:
        try:
            if found := condition():
                return found
            why = ""
        except LOST as error:
            why = f" ({error})"
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}{why}")
        time.sleep(0.05)


def member(setup: Setup, side: str, net: Network, directory: Path) -> Process:
    """Return a server that is not started yet, with a configuration file that Sentinel lets it rewrite."""
    directory.mkdir()
    data = directory / "data"
    data.mkdir()
    ours = setup.server == OURS
    lines = {
        "bind": "0.0.0.0" if net.can_cut else "127.0.0.1",
        "port": net.port(side),
        "protected-mode": "no",
        "dir": data,
        "appendonly": "yes",
        "appendfsync": setup.fsync,
        "repl-diskless-sync-delay": 0,
        "repl-ping-replica-period": 1,
        "min-replicas-to-write": setup.min_replicas,
    }
    lines |= {"synchronous-replicas": setup.synchronous} if ours else {"save": '""'}
    settings = directory / "server.conf"
    settings.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    if ours:
        words = [sys.executable, "-m", "tests.failover.server", "serve", "--config", str(settings)]
    else:
        words = [str(binary(setup.server)), str(settings)]
    return Process(side, net, directory, words)


def binary(name: str) -> Path:
    """The executable of a peer. Raises `PeerMissing`."""
    found = peers.path(name)
    if found is None:
        raise peers.PeerMissing(name)
    return found


def sentinel(setup: Setup, side: str, net: Network, directory: Path) -> Process:
    """Return a Sentinel that is not started yet and watches the first member."""
    directory.mkdir()
    settings = directory / "sentinel.conf"
    first = MEMBERS[0]
    settings.write_text(
        f"port {net.port(side)}\nbind {'0.0.0.0' if net.can_cut else '127.0.0.1'}\n"
        f"protected-mode no\ndir {directory}\n"
        f"sentinel monitor {SERVICE} {net.host(first)} {net.port(first)} 2\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
    )
    return Process(side, net, directory, [str(binary(setup.watcher)), str(settings), "--sentinel"])


@dataclass
class Group:
    """Three members and three Sentinels."""

    setup: Setup
    net: Network
    members: list[Process] = field(default_factory=list)
    sentinels: list[Process] = field(default_factory=list)
    struck: float = 0.0
    """Time at which the last fault took effect."""

    def strike(self) -> None:
        """Record that a fault has taken effect."""
        self.struck = time.monotonic()

    @property
    def places(self) -> str:
        """The addresses of the Sentinels, as clients take them."""
        return ",".join(f"{one.host}:{one.port}" for one in self.sentinels)

    def start(self) -> None:
        """Start everything, and wait until it is whole."""
        for one in self.members:
            one.start()
        for one in self.members:
            one.await_answer()
        first = self.members[0]
        for one in self.members[1:]:
            one.ask("REPLICAOF", first.host, first.port)
        until(lambda: len(first.ask("ROLE")[2]) == 2, "two replicas follow")
        self.start_sentinels()
        self.await_whole()

    def start_sentinels(self) -> None:
        """Start the Sentinels."""
        for one in self.sentinels:
            one.start()
        for one in self.sentinels:
            one.await_answer()
        self.quicken()

    def quicken(self) -> None:
        """Let the Sentinels ask more often. They forget it when they end."""
        for one in self.sentinels:
            one.ask("SENTINEL", "DEBUG", "info-period", PERIOD_MS, "publish-period", PERIOD_MS)

    def chosen(self) -> Process | None:
        """The member that the most Sentinels name as the primary; None if none answers."""
        votes: list[tuple[str, int]] = []
        for one in self.sentinels:
            with suppress(*LOST):
                host, port = one.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                votes.append((host.decode(), int(port)))
        if not votes:
            return None
        place = max(votes, key=votes.count)
        return next(one for one in self.members if (one.host, one.port) == place)

    def primary(self) -> Process:
        """The primary according to the Sentinels. Waits for one that answers."""
        found: Process = until(self.chosen, "a Sentinel names a primary")
        return found

    def replicas(self) -> list[Process]:
        """The other members."""
        primary = self.primary()
        return [one for one in self.members if one is not primary]

    def fault(self) -> str:
        """What is wrong with the group; empty if it is whole: one primary that all Sentinels name, which two replicas
        follow, and no failover under way."""
        primary = self.chosen()
        if primary is None:
            return "no Sentinel answers"
        for one in self.sentinels:
            (words,) = one.ask("SENTINEL", "MASTERS")
            about = {k.decode(): v.decode() for k, v in zip(words[::2], words[1::2], strict=True)}
            if (about["ip"], int(about["port"])) != (primary.host, primary.port):
                return f"{one.side} names {about['ip']}, not {primary.side}"
            if about["flags"] != "master":
                return f"{one.side} sees {primary.side} as {about['flags']}"
            if (about["num-slaves"], about["num-other-sentinels"]) != ("2", "2"):
                return f"{one.side} knows {about['num-slaves']} replicas, {about['num-other-sentinels']} Sentinels"
        role = primary.ask("ROLE")
        if role[0] != b"master":
            return f"{primary.side} is a {role[0].decode()}"
        if len(role[2]) != 2:
            return f"{primary.side} has {len(role[2])} replicas"
        for one in self.members:
            if one is primary:
                continue
            about = one.info()
            place = (about.get("master_host"), about.get("master_port"))
            if place != (primary.host, primary.port) or about.get("master_link_status") != "up":
                return f"{one.side} is {about['role']}, {place}, link {about.get('master_link_status')}"
        return ""

    def await_whole(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the group is whole. Raises `TimeoutError` with what is wrong."""
        last = ""

        def whole() -> bool:
            nonlocal last
            last = "a process does not answer"
            last = self.fault()
            return not last

        try:
            until(whole, "the group is whole", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {last}") from None

    def repair(self) -> None:
        """Undo what an interrupted fault has left: partitions, paused and killed processes."""
        self.net.heal()
        for one in (*self.members, *self.sentinels):
            one.resume()
            if not one.runs:
                one.start()
                one.await_answer()

    def hand_over(self) -> None:
        """Ask a Sentinel for a failover, as an operator does."""
        self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)


@contextmanager
def group(setup: Setup, net: Network, directory: Path) -> Iterator[Group]:
    """Start a group, and end all its processes at the end."""
    found = Group(setup, net)
    with ExitStack() as stack:
        for side in MEMBERS:
            found.members.append(member(setup, side, net, directory / side))
            stack.callback(found.members[-1].close)
        for side in SENTINELS:
            found.sentinels.append(sentinel(setup, side, net, directory / side))
            stack.callback(found.sentinels[-1].close)
        found.start()
        yield found
