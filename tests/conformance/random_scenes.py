"""Random scenes: interleaved commands of four clients, with blocked clients, transactions, and keys
that are deleted, created and replaced. No reply depends on the time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.conformance.scenes import Line, LocalStage, Scene

KEYS = ("s", "s", "s", "t", "t", "u")


class RandomScene:
    """Draws lines and runs them on Headwater, to draw no commands for blocked clients."""

    def __init__(self, seed: int, server: str) -> None:
        self.random = Random(seed)
        self.server = server
        self.ms = 1
        self.stage = LocalStage()
        self.queueing: set[str] = set()
        """Clients inside MULTI."""

    def scene(self, lines: int) -> Scene:
        """Draw a scene of ``lines`` lines."""
        drawn: list[Line] = []
        for number in range(lines):
            client = self._client()
            words = self._words(client)
            line = Line(client, tuple(word.encode() for word in words.split(" ")), "", number)
            drawn.append(line)
            if words.startswith("CLIENT UNBLOCK"):
                waiter = line.words[2][4:5].decode()
                unblock = (*line.words[:2], b"%d" % self.stage.number(waiter), *line.words[3:])
                self.stage.send(client, unblock)
            else:
                self.stage.send(client, line.words)
            self.stage.events()
        return Scene("random", "", (self.server,), tuple(drawn))

    # --- parts of lines -------------------------------------------------------------------------

    def _one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def _client(self) -> str:
        """Return a client that is not blocked. A never blocks."""
        free = [name for name in "BCD" if not self._waits(name)]
        return self.random.choice(["A", *free])

    def _waits(self, name: str) -> bool:
        client = self.stage.clients.get(name)
        return client is not None and client.session.blocked

    def _key(self) -> str:
        return self.random.choice(KEYS)

    def _group(self) -> str:
        return self._one("g", "g", "g", "h")

    def _id(self) -> str:
        return f"{max(0, self.ms - self.random.choice((0, 0, 1, 2, 5)))}-{self._one('0', '0', '1')}"

    def _words(self, client: str) -> str:
        if client in self.queueing:
            if self.random.random() < 0.3:
                self.queueing.remove(client)
                return self._one("EXEC", "EXEC", "EXEC", "EXEC", "DISCARD")
        elif self.random.random() < 0.06:
            if self.random.random() < 0.5:
                return f"WATCH {self._key()}"
            self.queueing.add(client)
            return "MULTI"
        waiting = [name for name in "BCD" if self._waits(name)]
        if waiting and self.random.random() < 0.05:
            return f"CLIENT UNBLOCK <id-{self.random.choice(waiting)}>" + self._one("", " ERROR")
        if client != "A" and self.random.random() < 0.5:
            return self._read(client)
        steps: list[tuple[int, Callable[[], str]]] = [
            (10, self._xadd),
            (4, self._entries),
            (6, self._groups),
            (4, self._pending),
            (3, self._keys),
            (3, self._look),
        ]
        return self.random.choice([step for weight, step in steps for _ in range(weight)])()

    # --- lines ----------------------------------------------------------------------------------

    def _read(self, client: str) -> str:
        count = self._one("", "", "COUNT 1 ", "COUNT 2 ")
        keys = [self._key() for _ in range(self.random.choice((1, 1, 1, 2)))]
        named = " ".join(keys)
        if self.random.random() < 0.4:
            plus = ("+",) if self.server == "redis-8.2" else ()
            ids = " ".join(self._one("$", "$", "0", self._id(), *plus) for _ in keys)
            return f"XREAD {count}BLOCK 0 STREAMS {named} {ids}"
        group, noack = self._group(), self._one("", "", "", "NOACK ")
        ids = " ".join(self._one(">", ">", ">", ">", ">", "0") for _ in keys)
        who = client.lower()
        return f"XREADGROUP GROUP {group} {who} {count}{noack}BLOCK 0 STREAMS {named} {ids}"

    def _xadd(self) -> str:
        self.ms += self.random.choice((0, 1, 1))
        trim = self._one("", "", "", "", "", "MAXLEN 2 ", "MAXLEN 0 ")
        return f"XADD {self._key()} {trim}{self.ms}-* n {self.ms}"

    def _entries(self) -> str:
        return self._one(
            f"XDEL {self._key()} {self._id()} {self._id()}",
            f"XTRIM {self._key()} MAXLEN {self._one('0', '1', '3')}",
            f"XTRIM {self._key()} MINID {self._id()}",
            f"XSETID {self._key()} {self.ms}-5",
        )

    def _groups(self) -> str:
        key, group = self._key(), self._group()
        return self._one(
            f"XGROUP CREATE {key} {group} 0 MKSTREAM",
            f"XGROUP CREATE {key} {group} $ MKSTREAM",
            f"XGROUP CREATE {key} {group} {self._id()} MKSTREAM",
            f"XGROUP DESTROY {key} {group}",
            f"XGROUP SETID {key} {group} {self._one('0', '$', self._id())}",
            f"XGROUP DELCONSUMER {key} {group} {self._one('b', 'c', 'd')}",
        )

    def _pending(self) -> str:
        key, group, who = self._key(), self._group(), self._one("b", "c", "d")
        words = [
            f"XACK {key} {group} {self._id()} {self._id()}",
            f"XCLAIM {key} {group} {who} 0 {self._id()} {self._id()} JUSTID",
            f"XAUTOCLAIM {key} {group} {who} 0 0 COUNT 2 JUSTID",
        ]
        if self.server == "redis-8.2":
            mode = self._one("KEEPREF", "DELREF")  # not ACKED: acked-after-destroy
            words.append(f"XDELEX {key} {mode} IDS 1 {self._id()}")
            words.append(f"XACKDEL {key} {group} {mode} IDS 1 {self._id()}")
        return self._one(*words)

    def _keys(self) -> str:
        one, other = self.random.sample(("s", "t", "u"), 2)
        return self._one(
            f"DEL {one}",
            f"UNLINK {one} {other}",
            f"SET {one} x",
            f"RENAME {one} {other}",
            f"RENAMENX {one} {other}",
            f"COPY {one} {other} REPLACE",
            f"PEXPIRE {one} 0",
            "FLUSHALL ASYNC",
        )

    def _look(self) -> str:
        key = self._key()
        words = [
            f"XPENDING {key} {self._group()}",
            f"XRANGE {key} - +",
            f"XLEN {key}",
            f"TYPE {key}",
        ]
        if self.server == "redis-8.2":  # lag-after-trim, entries-read-over
            words.append(f"XINFO GROUPS {key}")
        return self._one(*words)
