"""Scenes: commands of several clients, some of them blocked, run on Headwater and on real servers.

    == title of the scene [8.2 9.1]
    A: XREADGROUP GROUP g a BLOCK 0 STREAMS s >     a command of client A; other letters, other clients
    B: XADD s 1-1 name value
    -- A                                            wait until A's timeout has passed
    @known-difference B: DEL s                      as in written cases
        B: 1                                        what a client has received after the line (recorded.py)

What each client has received after a line is compared. ``<id-A>`` is the id of A's connection.
"""

from __future__ import annotations

import re
import select
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from headwater.config.config import Config
from headwater.resp.inline import split
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Reply
from tests.conformance.cases import TITLE, VERSIONS
from tests.conformance.endpoints import Connection
from tests.peers import Peer

DIRECTORY = Path(__file__).parent / "plays"

_LINE = re.compile(r"(?:@(?P<tag>\S+) )?(?:(?P<client>[A-Z]): (?P<words>.*)|-- (?P<waits>[A-Z]))$")
_NUMBER = re.compile(rb"<id-([A-Z])>")

Events = dict[str, list[Reply]]


class Line(NamedTuple):
    """A command of ``client``, or a wait for its timeout if ``words`` is empty."""

    client: str
    words: tuple[bytes, ...]
    tag: str
    number: int


class Scene(NamedTuple):
    """Lines for an empty store, and the servers that they run on."""

    file: str
    title: str
    servers: tuple[str, ...]
    lines: tuple[Line, ...]


def read(path: Path) -> list[Scene]:
    """Read the scenes of a file."""
    scenes: list[Scene] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text or text.startswith(("#", " ")):
            continue
        if title := TITLE.match(text):
            servers = tuple(VERSIONS[v] for v in (title["servers"] or "7.0 8.2 9.1").split())
            scenes.append(Scene(path.stem, title["title"], servers, ()))
            continue
        found = _LINE.match(text)
        assert found, f"{path.name}, line {number}: {text!r} is not a valid line"
        words = tuple(split((found["words"] or "").encode()))
        line = Line(found["client"] or found["waits"], words, found["tag"] or "", number)
        scenes[-1] = scenes[-1]._replace(lines=(*scenes[-1].lines, line))
    return scenes


def all_scenes() -> list[Scene]:
    return [scene for path in sorted(DIRECTORY.glob("*.txt")) for scene in read(path)]


class Stage(Protocol):
    """A store that a scene can run on."""

    def number(self, client: str) -> int: ...
    def send(self, client: str, words: tuple[bytes, ...]) -> None: ...
    def wait(self, client: str) -> None: ...
    def events(self) -> Events: ...


def play(scene: Scene, stage: Stage) -> list[Events]:
    """Run a scene. Return what each client has received after each line."""
    found = []
    for line in scene.lines:
        if line.words:
            words = tuple(
                _NUMBER.sub(lambda m: b"%d" % stage.number(m[1].decode()), word)
                for word in line.words
            )
            stage.send(line.client, words)
        else:
            stage.wait(line.client)
        found.append(stage.events())
    return found


class LocalStage:
    """Headwater in this process, with a clock that the scene moves."""

    def __init__(self, *, resp: int = 2) -> None:
        self.store = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
        self.resp = resp
        self.clients: dict[str, LocalClient] = {}

    def _client(self, name: str) -> LocalClient:
        if name not in self.clients:
            self.clients[name] = self.store.client(resp=self.resp, kind="tcp")
        return self.clients[name]

    def number(self, client: str) -> int:
        return self._client(client).session.id

    def send(self, client: str, words: tuple[bytes, ...]) -> None:
        sender = self._client(client)
        sender.send(*words)
        # Servers compared with do not delay the reply to a failed login.
        while sender.session in self.store.node.services.authorization.logins:
            self.store.advance(self.store.seconds_ahead())

    def wait(self, client: str) -> None:
        assert self.clients[client].session.blocked, f"{client} does not wait"
        self.store.advance(self.store.seconds_ahead())

    def events(self) -> Events:
        found: Events = {}
        for name, client in self.clients.items():
            while (reply := client.reply()) is not None:
                found.setdefault(name, []).append(reply)
        return found


class PeerStage:
    """A real server. `close` closes the connections."""

    def __init__(self, server: Peer, *, resp: int = 2) -> None:
        self.server = server
        self.resp = resp
        self.stack = ExitStack()
        self.control = self._connect()
        self.control.prepare(2)
        self.clients: dict[str, Connection] = {}
        self.numbers: dict[str, int] = {}

    def _connect(self) -> Connection:
        connection = Connection(self.server)
        self.stack.callback(connection.close)
        return connection

    def _client(self, name: str) -> Connection:
        if name not in self.clients:
            connection = self._connect()
            connection.run([(b"HELLO", b"%d" % self.resp)])
            (number,) = connection.run([(b"CLIENT", b"ID")])
            assert isinstance(number, int)
            self.clients[name], self.numbers[name] = connection, number
        return self.clients[name]

    def number(self, client: str) -> int:
        self._client(client)
        return self.numbers[client]

    def send(self, client: str, words: tuple[bytes, ...]) -> None:
        """Send a command, and wait until the server has replied or has blocked the client."""
        connection = self._client(client)
        connection.send(*words)
        deadline = time.monotonic() + 30
        while not self._readable(connection) and not self._blocked(client):
            assert time.monotonic() < deadline, f"{words} is neither answered nor blocked"

    def wait(self, client: str) -> None:
        select.select([self.clients[client].socket], [], [], 30)

    def events(self) -> Events:
        # The server writes everything that precedes this reply to its sockets before the reply.
        self.control.run([(b"PING",)])
        found: Events = {}
        for name, connection in self.clients.items():
            while self._readable(connection):
                connection.reader.feed(connection.socket.recv(1 << 16))
            while (reply := connection.reader.next()) is not None:
                found.setdefault(name, []).append(reply)
        return found

    def close(self) -> None:
        self.stack.close()

    @staticmethod
    def _readable(connection: Connection) -> bool:
        return bool(select.select([connection.socket], [], [], 0)[0])

    def _blocked(self, client: str) -> bool:
        (rows,) = self.control.run([(b"CLIENT", b"LIST", b"ID", b"%d" % self.numbers[client])])
        assert isinstance(rows, bytes)
        flags = re.search(rb" flags=(\S+)", rows)
        return flags is not None and b"b" in flags[1]
