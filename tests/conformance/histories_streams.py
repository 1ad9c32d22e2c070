"""Random histories of streams for a pipeline: binary values, ids that the server generates, bursts, and
pending lists that fill whole blocks. A seed determines them.

An id that the server generates (``*``) is written ``*@7``: the seventh of the history. Later
commands may refer to it as ``@7`` or ``(@7``; the sender of the history replaces these by the
server's id. Such ids occur only in the stream ``a``, on which no command is drawn whose reply
depends on the length of ids.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance.endpoints import Command
from tests.conformance.histories import History, Options, Step

JUDGED = frozenset(
    {b"XADD", b"XRANGE", b"XREADGROUP", b"XACK", b"XCLAIM", b"XAUTOCLAIM", b"XPENDING"}
)
"""The commands that a campaign counts. Others occur between them."""

VALUES = (
    *(b"", b"\r\n", b"a\r\nb", b"$3\r\nfoo\r\n", b"*1\r\n$4\r\nPING\r\n", b"$-1\r\n", b"\r", b"\n\r"),
    *(b"\x00", b"\x00\r\n\x00", b"\xff\xfe\xfd", bytes(range(256)), "\u00e9\u2603".encode()),
    *(b"0", b"-1", b"007", b"9223372036854775807", b"18446744073709551615", b" ", b"1 ", b"v"),
)  # fmt: skip
NAMES = (b"n", b"m", b"5", b"", b"\r\n", b"\x00\xff", b"temperature", b"$1\r\nx", b"x" * 70)
SIZES = (0, 1, 9, 10, 31, 63, 64, 99, 100, 127, 128, 255, 999, 1000, 4095, 4096)
LONG = (16_383, 16_384, 65_535, 70_000)
BATCHES = (1, 2, 5, 20, 100, 100, 400)
PART = 100
"""Maximum number of commands of the first burst in a batch."""


class Unit(NamedTuple):
    """A command, or a whole transaction. Units of a ``batch`` are sent at once."""

    batch: int
    commands: tuple[Command, ...]


class StreamHistory(History):
    """Draws commands on streams. If ``large``, it begins with thousands of entries and hundreds of
    pending ones, more than fit into a block, and limits replies by COUNT."""

    def __init__(self, seed: int, server: str = "redis-8.2", *, large: bool = False) -> None:
        super().__init__(seed, server)
        self.large = large
        self.given = self.named = 0
        """Number of ids to be generated so far, and of those that commands may refer to."""
        self.about = b""
        self.field_names: list[bytes] = [b"n"]
        self.steps = [
            (30, self.xadd),
            (12, self.xrange),
            (20, self.xreadgroup),
            (10, self.xack),
            (9, self.xclaim),
            (9, self.xautoclaim),
            (9, self.xpending),
            (3, self.xdel),
            (2, self.xtrim),
            (3, self.xackdel),
            (3, self.xdelex),
            (2, self.xgroup),
            (1, self.consumers),
            (2, self.xread),
            (2, self.xinfo),
            (1, self.xsetid),
            (1, self.odd),
        ]
        if not large:
            self.steps.append((1, self.recreate))

    def units(self, judged: int) -> list[Unit]:
        """Return units with at least ``judged`` commands of `JUDGED`, and others between them."""
        functions = [step for weight, step in self.steps for _ in range(weight)]
        found = [Unit(0, (command,)) for command in self.beginning()]
        batch, count = 1, 0
        if self.large:
            batch = self._fill(found)
        while count < judged:
            for _ in range(self.random.choice(BATCHES)):
                commands = self._drawn(functions)
                count += sum(command[0] in JUDGED for command in commands)
                found.append(Unit(batch, commands))
            batch += 1
            self.named = self.given
        return found

    def beginning(self) -> list[Command]:
        """Create a string, and three streams with two groups of three consumers."""
        found: list[Command] = [(b"SET", b"w", b"x")]
        for key in "sta":
            for group in "gh":
                found.append(self._bytes(["XGROUP", "CREATE", key, group, 0, "MKSTREAM"]))
                found += [
                    self._bytes(["XGROUP", "CREATECONSUMER", key, group, name]) for name in "abc"
                ]
        return found

    def _fill(self, found: list[Unit]) -> int:
        """Add thousands of entries, hundreds of them pending. Return the number of the next batch."""
        batch = 1
        for _ in range(self.random.randint(20, 40)):
            found += [Unit(batch, (self._words(self.xadd()),)) for _ in range(PART)]
            batch += 1
            self.named = self.given
        for group in "gh":
            for name in "abc":
                words: Options = ["XREADGROUP", "GROUP", group, name, "COUNT"]
                words += [self.random.choice((10, 100, 300, 600)), "STREAMS", "s", "a", ">", ">"]
                found.append(Unit(batch, (self._words(words),)))
        return batch + 1

    def _drawn(self, functions: list[Step]) -> tuple[Command, ...]:
        if self.random.random() < 0.02:
            inner = [self._words(self.random.choice(functions)()) for _ in range(4)]
            return ((b"MULTI",), *inner, (b"EXEC",))
        return (self._words(self.random.choice(functions)()),)

    def _words(self, options: Options) -> Command:
        """Return the command to send, with a COUNT if its reply could be a whole large stream."""
        words = list(self._bytes(options))
        if self.large and words[0] in (b"XREAD", b"XREADGROUP", b"XRANGE", b"XREVRANGE"):
            at = words.index(b"COUNT") if b"COUNT" in words else -1
            most = b"%d" % self.random.choice((1, 3, 10, 10, 100, 300))
            if at >= 0:
                words[at + 1] = most
            elif words[0].endswith(b"RANGE"):
                words += [b"COUNT", most]
            else:
                at = words.index(b"STREAMS")
                words[at:at] = [b"COUNT", most]
        return tuple(words)

    # --- parts of commands ----------------------------------------------------------------------

    def _key(self) -> str:
        draw = self.random.random()
        key = super()._key() if draw < 0.8 else "a"
        self.about = key.encode()
        return key

    def _id(self) -> str:
        if self.about == b"a" and self.named and self.random.random() < 0.9:
            back = int(self.random.expovariate(0.05 if not self.large else 0.004))
            return f"@{max(1, self.named - back)}"
        if self.large and self.random.random() < 0.5:
            return f"{self.random.randint(1, self.ms)}-0"
        return super()._id()

    def _ids(self, most: int) -> Options:
        if self.large and self.random.random() < 0.1:
            most = 300
        return super()._ids(most)

    def _trim(self) -> Options:
        if self.about != b"a":
            return super()._trim()
        kept = self.random.choice((5, 40, 150)) if not self.large else 2000
        if self.random.random() < 0.6:
            return ["MAXLEN", "=", kept, *self._mode(0.4)]
        return ["MINID", "=", self._id(), *self._mode(0.4)]

    def _value(self) -> bytes:
        draw = self.random.random()
        if draw < 0.4:
            return self.random.choice(VALUES)
        size = self.random.choice(LONG if draw > 0.998 else SIZES[:12] if self.large else SIZES)
        return self.random.choice((b"x", b"\r\n", b"\x00"))[:1] * size

    def _fields(self) -> Options:
        """Return field-value pairs, usually with the names of the previous entry."""
        if self.random.random() < 0.3:
            count = self.random.choice((1, 1, 2, 3, 5))
            if self.random.random() < 0.02:
                count = self.random.choice((17, 64, 128, 300))
            self.field_names = [self.random.choice(NAMES) for _ in range(count)]
        return [word for name in self.field_names for word in (name, self._value())]

    # --- commands -------------------------------------------------------------------------------

    def xadd(self) -> Options:
        key = self._key()
        if key == "a":
            self.given += 1
            entry_id = f"*@{self.given}"
        else:
            self.ms += self.random.choice((0, 1, 1, 1, 2))
            entry_id = f"{self.ms}-*" if self.random.random() < 0.6 else f"{self.ms}-{self.ms}"
            if self.random.random() < 0.05:
                entry_id = super()._id()
        trim = self._trim() if self.random.random() < 0.03 and not self.large else []
        return ["XADD", key, *self._maybe(0.02, "NOMKSTREAM"), *trim, entry_id, *self._fields()]

    def xtrim(self) -> Options:
        found = super().xtrim()
        if self.large and "MAXLEN" in found:
            at = next(at for at, word in enumerate(found) if isinstance(word, int))
            found[at] = 1500
        return found

    def xrange(self) -> Options:
        count = self._maybe(0.5, "COUNT", self.random.choice((0, 1, 2, 10, 100)))
        if self.random.random() < 0.75:
            return ["XRANGE", self._key(), self._end("-"), self._end("+"), *count]
        return ["XREVRANGE", self._key(), self._end("+"), self._end("-"), *count]

    def xinfo(self) -> Options:
        found = self._without_nodes(super().xinfo())
        if self.large and "FULL" in found:
            found[-1] = 3
        return found

    def odd(self) -> Options:
        return self._without_nodes(super().odd())

    @staticmethod
    def _without_nodes(options: Options) -> Options:
        """Replace XINFO STREAM of the stream ``a``: its nodes depend on the length of the ids."""
        return ["XINFO", "GROUPS", "a"] if options[:3] == ["XINFO", "STREAM", "a"] else options
