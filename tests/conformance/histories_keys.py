"""Random histories of commands on keys and on values of every type. A seed determines them.

Five keys in two databases hold streams, strings, lists, sets and hashes in turn, so that most
commands occasionally get the wrong type, or a key to overwrite or move. Times are hours ahead or in
the past, so that two servers can give the same replies.
"""

from __future__ import annotations

from tests.conformance.endpoints import Command
from tests.conformance.histories import HOUR_MS, History, Options

_KEYS = "abcde"
_HOUR_S = HOUR_MS // 1000
_FAR_S = 33_177_117_420
"""A Unix time about a thousand years from now."""


class KeyHistory(History):
    """Draws commands on keys. ``server`` is the server to compare with, as in `History`."""

    def __init__(self, seed: int, server: str) -> None:
        super().__init__(seed, server)
        self.minutes = 0
        self.steps = [
            (4, self.delete),
            (6, self.look),
            (12, self.move),
            (7, self.expire),
            (7, self.remaining),
            (4, self.scan),
            (10, self.string),
            (6, self.number),
            (5, self.several),
            (12, self.a_list),
            (8, self.a_set),
            (9, self.a_hash),
            (14, self.stream),
            (2, self.database),
            (1, self.odd),
        ]

    def commands(self, count: int) -> list[Command]:
        """Return at least ``count`` commands, occasionally some of them in a transaction."""
        functions = [step for weight, step in self.steps for _ in range(weight)]
        found: list[Command] = []
        while len(found) < count:
            drawn = [self._bytes(self.random.choice(functions)())]
            if self.random.random() < 0.04:
                drawn += [self._bytes(self.random.choice(functions)()) for _ in range(3)]
                drawn = [(b"MULTI",), *drawn, (b"EXEC",)]
            found += drawn
        return found

    # --- parts of commands ----------------------------------------------------------------------

    def _key(self) -> str:
        return self.random.choice(_KEYS)

    def _keys(self) -> Options:
        return [self._key() for _ in range(self.random.choice((1, 1, 2, 3)))]

    def _value(self) -> str | int:
        return self._one("v", "w", "", "x" * 70, 7, -1, 9223372036854775807, "07", "\u00e9")

    def _values(self) -> Options:
        return [self._value() for _ in range(self.random.choice((1, 1, 2, 4)))]

    def _field(self) -> str:
        return self.random.choice(("f", "g", "h", ""))

    def _index(self) -> int:
        return self.random.choice((0, 0, 1, 2, 3, -1, -1, -2, -3, 99, -99))

    def _ahead_s(self) -> int:
        """Return some hours in seconds, never twice the same: which of two times is later must not
        depend on the speed of a server."""
        self.minutes += 1
        return self.random.choice((1, 2, 3, 50)) * _HOUR_S + self.minutes * 60

    def _ends(self) -> Options:
        """Return an expiry, in the syntax of SET."""
        seconds = self._ahead_s()
        return list(
            self.random.choice(
                (
                    ("EX", seconds),
                    ("PX", seconds * 1000),
                    ("EXAT", _FAR_S),
                    ("PXAT", _FAR_S * 1000),
                )
            )
        )

    # --- keys -----------------------------------------------------------------------------------

    def delete(self) -> Options:
        return [self._one("DEL", "UNLINK"), *self._keys()]

    def look(self) -> Options:
        what = self._one("EXISTS", "TOUCH", "TYPE", "TYPE", "DBSIZE")
        if what == "TYPE":
            return [what, self._key()]
        return [what] if what == "DBSIZE" else [what, *self._keys()]

    def move(self) -> Options:
        what = self._one("RENAME", "RENAME", "RENAMENX", "COPY", "COPY", "COPY", "MOVE")
        if what == "MOVE":
            return [what, self._key(), self._one(0, 1)]
        found: Options = [what, self._key(), self._key()]
        if what == "COPY":
            found += self._maybe(0.3, "DB", self._one(0, 1)) + self._maybe(0.7, "REPLACE")
        return found

    def expire(self) -> Options:
        what = self._one("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST")
        if what == "PERSIST":
            return [what, self._key()]
        seconds = self._ahead_s() if self.random.random() < 0.8 else self.random.choice((-1, 0))
        far = _FAR_S + seconds if seconds > 0 else seconds
        at: dict[str | int, int] = {
            "EXPIRE": seconds,
            "PEXPIRE": seconds * 1000,
            "EXPIREAT": far,
            "PEXPIREAT": far * 1000,
        }
        conditions = self._maybe(0.4, self._one("NX", "XX", "GT", "LT"))
        return [what, self._key(), at[what], *conditions, *self._maybe(0.1, self._one("XX", "GT"))]

    def remaining(self) -> Options:
        return [self._one("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), self._key()]

    def scan(self) -> Options:
        if self.random.random() < 0.5:
            return ["KEYS", self._one("*", "a", "[a-c]", "[^a]", "?", "\\b", "*e*", "")]
        found: Options = ["SCAN", 0, "COUNT", 1000]
        found += self._maybe(0.5, "MATCH", self._one("*", "[b-d]", "a*"))
        return found + self._maybe(
            0.5, "TYPE", self._one("stream", "string", "list", "set", "hash", "zset")
        )

    def database(self) -> Options:
        what = self._one("SELECT", "SELECT", "SELECT", "SWAPDB", "SWAPDB", "FLUSHDB", "FLUSHALL")
        if what == "SELECT":
            return [what, self._one(0, 0, 1)]
        if what == "SWAPDB":
            return [what, self._one(0, 1), self._one(0, 1, 2)]
        return [what, "ASYNC"] if self.random.random() < 0.2 else ["DBSIZE"]

    # --- values ---------------------------------------------------------------------------------

    def string(self) -> Options:
        what = self._one(
            *("SET", "SET", "SET", "GET", "GETDEL", "GETEX", "SETNX", "SETEX", "STRLEN"),
            *("GETRANGE", "SETRANGE"),
        )
        found: Options = [what, self._key()]
        if what == "SET":
            found += [self._value(), *self._maybe(0.3, self._one("NX", "XX"))]
            found += self._maybe(0.3, "GET")
            found += self._ends() if self.random.random() < 0.3 else self._maybe(0.2, "KEEPTTL")
        elif what == "GETEX":
            found += self._ends() if self.random.random() < 0.5 else self._maybe(0.5, "PERSIST")
        elif what == "SETNX":
            found += [self._value()]
        elif what == "SETEX":
            found += [_HOUR_S, self._value()]
        elif what == "GETRANGE":
            found += [self._index(), self._index()]
        elif what == "SETRANGE":
            found += [self._index(), self._value()]
        return found

    def number(self) -> Options:
        what = self._one("INCR", "DECR", "INCRBY", "DECRBY", "APPEND")
        if what in ("INCR", "DECR"):
            return [what, self._key()]
        if what == "APPEND":
            return [what, self._key(), self._one("", "1", "0", "x")]
        return [what, self._key(), self._one(1, -5, 0, 9223372036854775807, "x")]

    def several(self) -> Options:
        what = self._one("MGET", "MGET", "MSET", "MSETNX")
        if what == "MGET":
            return [what, *self._keys()]
        return [what, *(word for key in self._keys() for word in (key, self._value()))]

    def a_list(self) -> Options:
        what = self._one(
            *("LPUSH", "RPUSH", "RPUSH", "LPOP", "RPOP", "LRANGE", "LRANGE", "LLEN"),
            *("LINDEX", "LSET", "LSET", "LREM", "LREM", "LTRIM"),
        )
        if what in ("LPUSH", "RPUSH"):
            return [what, self._key(), *self._values()]
        if what in ("LPOP", "RPOP"):
            return [what, self._key(), *self._maybe(0.5, self._one(0, 1, 2, 9))]
        if what in ("LRANGE", "LTRIM"):
            return [what, self._key(), self._index(), self._index()]
        if what == "LINDEX":
            return [what, self._key(), self._index()]
        if what in ("LSET", "LREM"):
            return [what, self._key(), self._index(), self._value()]
        return [what, self._key()]

    def a_set(self) -> Options:
        what = self._one(
            *("SADD", "SADD", "SADD", "SREM", "SREM", "SMEMBERS", "SISMEMBER", "SCARD"),
            *("SMISMEMBER", "SSCAN"),
        )
        if what == "SSCAN":
            return [what, self._key(), 0]
        if what in ("SADD", "SREM", "SMISMEMBER"):
            return [what, self._key(), *self._values()]
        return [what, self._key(), *([self._value()] if what == "SISMEMBER" else [])]

    def a_hash(self) -> Options:
        what = self._one(
            *("HSET", "HSET", "HSETNX", "HGET", "HMGET", "HDEL", "HLEN", "HEXISTS"),
            *("HMSET", "HINCRBY", "HKEYS", "HVALS", "HSTRLEN", "HSCAN"),
        )
        found: Options = [what, self._key()]
        if what in ("HSET", "HMSET"):
            for _ in range(self.random.choice((1, 1, 3))):
                found += [self._field(), self._value()]
        elif what == "HSETNX":
            found += [self._field(), self._value()]
        elif what in ("HGET", "HEXISTS", "HSTRLEN"):
            found += [self._field()]
        elif what == "HINCRBY":
            found += [self._field(), self._one(1, -5, 9223372036854775807)]
        elif what == "HSCAN":
            found += [0]
        elif what in ("HMGET", "HDEL"):
            found += [self._field(), self._field()]
        return found

    def stream(self) -> Options:
        key = self._key()
        what = self.random.randrange(12)
        if what < 4:
            self.ms += self.random.choice((0, 1, 2))
            return ["XADD", key, f"{self.ms}-*", "n", self.ms]
        if what == 4:
            return [
                "XGROUP",
                "CREATE",
                key,
                "g",
                self._one("0", "$"),
                *self._maybe(0.5, "MKSTREAM"),
            ]
        if what < 8:
            count = self._maybe(0.5, "COUNT", 1)
            return ["XREADGROUP", "GROUP", "g", self._consumer(), *count, "STREAMS", key, ">"]
        if what == 8:
            return ["XPENDING", key, "g", "-", "+", 10]
        if what == 9:
            return ["XRANGE", key, "-", "+"]
        if what == 10:
            return ["XACK", key, "g", self._id()]
        # 7.0 makes a consumer only when it gets something (claims-make-consumers).
        return ["XLEN", key] if self.server == "redis-7.0" else ["XINFO", "STREAM", key, "FULL"]

    def odd(self) -> Options:
        """Return a command that is an error."""
        return list(
            self.random.choice(
                (
                    ["RENAME", "none", "a"],
                    ["COPY", "a", "a"],
                    ["EXPIRE", "a", "x"],
                    ["SET", "a", "1", "EX", "0"],
                    ["INCRBY", "none", "x"],
                    ["LPOP", "a", "-1"],
                    ["SWAPDB", "0", "99"],
                    ["SCAN", "x"],
                )
            )
        )
