"""Random histories of commands on streams, for cases that nobody has thought of. A seed determines
them.

Ids are explicit and ages are set in hours, so that two servers can give the same replies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.conformance.endpoints import Command

HOUR_MS = 3_600_000

Options = list[str | int | bytes]
Step = Callable[[], Options]


class History:
    """Draws commands on two streams with two groups and three consumers each.

    ``server`` is the server to compare with. Commands that it does not have, or that differ on
    purpose, are left out (known_differences.toml has the reasons).
    """

    def __init__(self, seed: int, server: str) -> None:
        self.random = Random(seed)
        self.server = server
        self.ms = 1
        self.modes = server == "redis-8.2"
        self.steps: list[tuple[int, Step]] = [
            (24, self.xadd),
            (4, self.xdel),
            (4, self.xtrim),
            (3, self.xgroup),
            (18, self.xreadgroup),
            (6, self.xack),
            (8, self.xclaim),
            (7, self.xautoclaim),
            (7, self.xpending),
            (3, self.xread),
            (4, self.xrange),
            (4, self.xinfo),
            (2, self.odd),
        ]
        if server != "redis-7.0":
            self.steps.append((1, self.xsetid))
            self.steps.append((1, self.consumers))
            self.steps.append((1, self.recreate))
        if self.modes:
            self.steps.append((5, self.xackdel))
            self.steps.append((5, self.xdelex))

    def commands(self, count: int) -> list[Command]:
        """Return at least ``count`` commands, occasionally some of them in a transaction."""
        found: list[Command] = [(b"SET", b"w", b"x")]
        for key in "st":
            for group in "gh":
                found.append(self._bytes(["XGROUP", "CREATE", key, group, 0, "MKSTREAM"]))
                found += [
                    self._bytes(["XGROUP", "CREATECONSUMER", key, group, name]) for name in "abc"
                ]
        functions = [step for weight, step in self.steps for _ in range(weight)]
        while len(found) < count:
            drawn = [self._bytes(self.random.choice(functions)())]
            if self.random.random() < 0.03:
                drawn += [self._bytes(self.random.choice(functions)()) for _ in range(3)]
                drawn = [(b"MULTI",), *drawn, (b"EXEC",)]
            found += drawn
        return found

    # --- parts of commands ----------------------------------------------------------------------

    @staticmethod
    def _bytes(words: Sequence[str | int | bytes]) -> Command:
        return tuple(word if isinstance(word, bytes) else str(word).encode() for word in words)

    def _one(self, *choices: str | int) -> str | int:
        return self.random.choice(choices)

    def _maybe(self, chance: float, *words: str | int | bytes) -> Options:
        return list(words) if self.random.random() < chance else []

    def _key(self) -> str:
        """Return one of two streams; rarely a key of another type, or one that does not exist."""
        draw = self.random.random()
        if draw < 0.02:
            return self.random.choice(("w", "none"))
        return "s" if draw < 0.8 else "t"

    def _group(self) -> str:
        return "g" if self.random.random() < 0.7 else "h"

    def _consumer(self) -> str:
        return self.random.choice("abc")

    def _id(self) -> str:
        """Return an id that was used, preferably a recent one, or a similar id."""
        ms = max(1, self.ms - int(self.random.expovariate(0.1)))
        seq = self.random.choice((0, 0, 0, 1, 2))
        if self.random.random() < 0.95:
            return f"{ms}-{seq}"
        forms = ("{0}", " {0}-{1}", "+{0}-{1}", "0{0}-00{1}", "{0}-{1}\0-9", "\t{0}-\n{1}")
        return self.random.choice(forms).format(ms, seq)

    def _any_id(self) -> str:
        """Like `_id`; occasionally the least or the greatest id, or an invalid one."""
        if self.random.random() < 0.95:
            return self._id()
        greatest = f"{2**64 - 1}-{2**64 - 1}"
        return self.random.choice(("0-0", "0", greatest, f"{2**64 - 1}", "-", "x", "5-", "(1-1"))

    def _ids(self, most: int) -> Options:
        return [self._any_id() for _ in range(self.random.randint(1, most))]

    def _end(self, bare: str) -> str:
        draw = self.random.random()
        if draw < 0.5:
            return bare
        return ("(" if draw < 0.6 else "") + self._any_id()

    def _min_idle(self) -> int:
        return self.random.choice((0, 0, 0, HOUR_MS, 3 * HOUR_MS, 5 * HOUR_MS))

    def _mode(self, chance: float = 0.5) -> Options:
        return self._maybe(chance, self._one("KEEPREF", "DELREF", "ACKED")) if self.modes else []

    def _trim(self) -> Options:
        sign: Options = [self._one("=", "~")] if self.random.random() < 0.7 else []
        if self.random.random() < 0.6:
            found: Options = ["MAXLEN", *sign, self.random.choice((0, 1, 3, 5, 8, 13, 21, 40))]
        else:
            found = ["MINID", *sign, self._id()]
        if sign == ["~"]:
            # No mode: the only server with modes then trims nothing (approximate-modes).
            return found + self._maybe(0.3, "LIMIT", self.random.choice((0, 1, 3, 10)))
        return found + self._mode(0.4)

    # --- commands -------------------------------------------------------------------------------

    def xadd(self) -> Options:
        self.ms += self.random.choice((0, 1, 1, 1, 2))
        entry_id = f"{self.ms}-*" if self.random.random() < 0.9 else self._id()
        fields: Options = ["n", self.ms]
        if self.random.random() < 0.3:
            fields += [self._one("n", "m", "5"), "x" * self.random.choice((0, 1, 50, 300))]
        trim = self._trim() if self.random.random() < 0.05 else []
        return ["XADD", self._key(), *self._maybe(0.05, "NOMKSTREAM"), *trim, entry_id, *fields]

    def xdel(self) -> Options:
        return ["XDEL", self._key(), *self._ids(4)]

    def xtrim(self) -> Options:
        return ["XTRIM", self._key(), *self._trim()]

    def xsetid(self) -> Options:
        more = self._maybe(0.2, "MAXDELETEDID", self._id())
        # Never below what a group has read: the servers' lag is negative then (cases/lag.txt).
        more += self._maybe(0.3, "ENTRIESADDED", 100 * self.ms)
        return ["XSETID", self._key(), f"{self.ms}-9", *more]

    def xgroup(self) -> Options:
        what = self._one("SETID", "SETID", "SETID", "CREATE", "DESTROY")
        if what == "DESTROY" and (self.random.random() < 0.7 or self.server != "valkey-9.1"):
            what = "SETID"  # not on 8.2 (acked-after-destroy), nor on 7.0
        if what == "DESTROY":
            return ["XGROUP", what, self._key(), self._group()]
        position = self._one("0", "$", self._id(), self._id(), "-")
        read = self._maybe(0.3, "ENTRIESREAD", self.random.choice((-1, 0, 1)))
        key = self._key()
        if self.server == "redis-7.0" and key == "none":
            key = "s"  # no new group: 7.0 creates its consumers only when it serves them
        return ["XGROUP", what, key, self._group(), position, *read]

    def consumers(self) -> Options:
        what = self._one("DELCONSUMER", "CREATECONSUMER")
        return ["XGROUP", what, self._key(), self._group(), self._consumer()]

    def xreadgroup(self) -> Options:
        """Read new entries, history, or both from several streams; a stream may occur twice."""
        options: list[Options] = [
            ["GROUP", self._group(), self._consumer()],
            self._maybe(0.6, "COUNT", self.random.choice((0, 1, 1, 2, 3, 10))),
            self._maybe(0.1, "NOACK"),
            self._maybe(0.05, "BLOCK", 1),
        ]
        self.random.shuffle(options)
        keys = [self._key() for _ in range(self.random.choice((1, 1, 1, 1, 2, 3)))]
        new = self.random.random()
        ids = [">" if self.random.random() < new + 0.2 else self._any_id() for _ in keys]
        return ["XREADGROUP", *(word for part in options for word in part), "STREAMS", *keys, *ids]

    def xread(self) -> Options:
        """Read entries after ids, from several streams; one of them may occur twice."""
        found: Options = ["XREAD", *self._maybe(0.6, "COUNT", self.random.choice((0, 1, 2, 10)))]
        found += self._maybe(0.1, "BLOCK", 1)
        keys = [self._key() for _ in range(self.random.choice((1, 2, 3)))]
        ids: Options = [self._one("$", "0", self._id(), self._any_id()) for _ in keys]
        if self.server == "redis-8.2" and self.random.random() < 0.3:
            ids[0] = "+"
        return [*found, "STREAMS", *keys, *ids]

    def xrange(self) -> Options:
        count = self._maybe(0.5, "COUNT", self.random.choice((0, 1, 2, 10)))
        if self.random.random() < 0.5:
            return ["XRANGE", self._key(), self._end("-"), self._end("+"), *count]
        return ["XREVRANGE", self._key(), self._end("+"), self._end("-"), *count]

    def xack(self) -> Options:
        return ["XACK", self._key(), self._group(), *self._ids(6)]

    def xackdel(self) -> Options:
        ids = self._ids(5)
        return ["XACKDEL", self._key(), self._group(), *self._mode(0.8), "IDS", len(ids), *ids]

    def xdelex(self) -> Options:
        ids = self._ids(5)
        words: Options = ["IDS", len(ids), *ids]
        mode = self._mode(0.8)
        parts = [*mode, *words] if self.random.random() < 0.8 else [*words, *mode]
        return ["XDELEX", self._key(), *parts]

    def xclaim(self) -> Options:
        found: Options = ["XCLAIM", self._key(), self._group(), self._consumer(), self._min_idle()]
        found += self._ids(5)
        found += self._maybe(0.5, "IDLE", self.random.choice((0, 2, 4, 6)) * HOUR_MS)
        found += self._maybe(0.15, "RETRYCOUNT", self.random.choice((0, 1, 9)))
        found += self._maybe(0.15, "FORCE")
        found += self._maybe(0.03, "LASTID", self._id())
        return found + self._maybe(0.4, "JUSTID")

    def xautoclaim(self) -> Options:
        found: Options = ["XAUTOCLAIM", self._key(), self._group(), self._consumer()]
        found += [self._min_idle(), self._one("-", "0", self._id(), self._end("-"))]
        found += self._maybe(0.7, "COUNT", self.random.choice((1, 1, 2, 5, 20)))
        return found + self._maybe(0.4, "JUSTID")

    def xpending(self) -> Options:
        found: Options = ["XPENDING", self._key(), self._group()]
        if self.random.random() < 0.3:
            return found
        found += self._maybe(0.3, "IDLE", self._min_idle())
        found += [self._end("-"), self._end("+"), self.random.choice((1, 5, 100))]
        return found + self._maybe(0.3, self._consumer())

    def xinfo(self) -> Options:
        what = self._one("STREAM", "FULL", "GROUPS", "CONSUMERS")
        if what == "FULL":
            return ["XINFO", "STREAM", self._key(), "FULL", "COUNT", self.random.choice((0, 3))]
        return ["XINFO", what, self._key(), *([self._group()] if what == "CONSUMERS" else [])]

    def recreate(self) -> Options:
        """Delete and create a key again, possibly with another type."""
        choices: list[Options] = [
            ["DEL", "t"],
            ["XGROUP", "CREATE", "t", self._group(), "0", "MKSTREAM"],
            ["XGROUP", "CREATE", "t", self._group(), "$", "MKSTREAM", "ENTRIESREAD", 3],
            ["SET", "t", "x"],
            ["XADD", "s", "MAXLEN", "=", "0", f"{self.ms}-*", "n", 1],
        ]
        return self.random.choice(choices)

    def odd(self) -> Options:
        """Return a command that is usually an error."""
        return list(
            self.random.choice(
                (
                    ["XADD", "s", "0-1", "a", "b"],
                    ["XACK", "s", "g", "x"],
                    ["XLEN", "t"],
                    ["XREADGROUP", "GROUP", "none", "a", "STREAMS", "s", ">"],
                    ["XCLAIM", "s", "g", "a", "0", "x"],
                    ["XGROUP", "SETID", "s", "none", "0"],
                    ["XGROUP", "CREATE", self._key(), "g", "0"],
                    ["XGROUP", "DELCONSUMER", "s", "none", "a"],
                    ["XLEN", self._key()],
                    ["XTRIM", self._key(), "MAXLEN", "1", "LIMIT", "1"],
                    ["XADD", self._key(), "NOMKSTREAM", f"{self.ms}-1", "n", "1"],
                    ["XPENDING", self._key(), "g", "-", "+"],
                    ["XINFO", "STREAM", self._key(), "FULL", "COUNT", "-1"],
                    ["XCLAIM", self._key(), "g", "a", "0", self._id(), "LASTID", "x"],
                    ["XAUTOCLAIM", self._key(), "g", "a", "x", "0"],
                )
            )
        )


def shrink(history: list[Command], differs: Callable[[list[Command]], bool]) -> list[Command]:
    """Leave out commands of a history as long as ``differs`` is true for the rest."""
    size = len(history) // 2
    while size:
        start = 0
        while start < len(history):
            shorter = history[:start] + history[start + size :]
            if differs(shorter):
                history = shorter
            else:
                start += size
        size //= 2
    return history
