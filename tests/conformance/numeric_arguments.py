"""Sends each numeric argument of each command the numbers at which types end, and compares what follows.

    usages of the command ─▶ one number replaced, or all ─▶ a form ─▶ request, then `PROBES` if it writes

Rule 1. The store has a stream with several blocks and nodes, deleted, pending and unread entries, and each
        usage runs twice: as it is, and with its other ids after the first entries. Before each request that
        writes, keys are copied again from the database `ORIGINALS`.
Rule 2. A request must not fail inside the store. If Redis 8.2.3 has the command and its options, its reply
        and the state after it must be the same, apart from known_differences.toml.
Rule 3. After each command all invariants hold, and the journal restores the same state.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import pytest

from headwater.commands.table import BY_FULL_NAME
from headwater.common import limits
from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.engine.groups import pending
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Reply
from tests.conformance import differences
from tests.conformance.endpoints import Command, Connection
from tests.conformance.fuzzing import START_MS
from tests.conformance.masks import Circumstances, comparable
from tests.conformance.usages import Number, marked_usages, names
from tests.peers import Peer
from tests.property.state import picture
from tests.samples import every

Words = tuple[bytes, ...]

NEAR = range(0, 201, every(5))
"""How far below the greatest number the numbers of a long run are."""
EDGES = (
    *(2**62, 2**53 - 1, 2**53, 2**53 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**31 - 1, 2**31, 2**31 + 1),
    *(-1, 0, -(2**31) - 1, -(2**63), -(2**63) + 1, -(2**63) - 1, 2**63, 2**64 - 1, 2**64),
)
FORMS = ("resp2", "resp3", "multi", "script")

ONLY_OURS = frozenset(
    b"CLIENT|KILL CLIENT|PAUSE CLUSTER|SLOT-STATS CLUSTER|MEET REPLICAOF SLAVEOF HELLO WAITAOF".split()
)
"""Commands that a real server does not get: it serves other tests, without an append-only file."""
NEWER = frozenset(
    b"XNACK XSETTLE XRENEW XDELAYED XSPLIT XCFGSET XIDMPRECORD CLAIM MAXCOUNT MAXSIZE IDMP IDMPAUTO "
    b"INCREX MSETEX DELEX DIGEST IFEQ IFNE IFDEQ IFDNE".split()
)
"""Commands and options that Redis 8.2.3 does not have."""
BLOCKING = frozenset(b"XREAD XREADGROUP BLPOP BRPOP WAIT WAITAOF".split())
UNLIKE = frozenset(
    b"CLIENT|LIST SLOWLOG|GET ACL|GENPASS ACL|LOG MEMORY|USAGE SCAN HSCAN SSCAN".split()
)
"""Commands of whose replies only errors are compared."""

FAILED, OTHER = "failed:", "another reply:"
_EXPLAINED = {
    b"XAUTOCLAIM": ("autoclaim-memory", "COUNT too high"),
    b"RESTORE": ("restore-far-ttl", "Invalid TTL value"),
}
"""Differences of written cases, and the error by which they are recognised."""

ORIGINALS = b"9"
SCENE: tuple[Command, ...] = (
    (b"CONFIG", b"SET", b"stream-node-max-entries", b"4"),
    (b"FLUSHALL",),
    (b"SELECT", ORIGINALS),
    (b"XADD", b"s", b"0-5", b"first", b"v"),
    *((b"XADD", b"s", b"%d-1" % at, b"field", b"v" * 20) for at in range(1, 25)),
    (b"XGROUP", b"CREATE", b"s", b"g", b"0-5"),
    (b"XREADGROUP", b"GROUP", b"g", b"a", b"COUNT", b"8", b"STREAMS", b"s", b">"),
    (b"XREADGROUP", b"GROUP", b"g", b"b", b"COUNT", b"4", b"STREAMS", b"s", b">"),
    (b"XCLAIM", b"s", b"g", b"b", b"0", b"4-1", b"10-1", b"IDLE", b"7200000", b"JUSTID"),
    (b"XDEL", b"s", b"0-5", b"3-1", b"5-1", b"14-1", b"15-1"),
    (b"XADD", b"t", b"5-1", b"a", b"b"),
    (b"XGROUP", b"CREATE", b"t", b"g", b"0"),
    (b"XREADGROUP", b"GROUP", b"g", b"a", b"STREAMS", b"t", b">"),
    (b"SET", b"string", b"10"),
    (b"HSET", b"hash", b"f", b"5"),
    (b"RPUSH", b"list", b"a", b"b", b"x", b"x", b"e"),
    (b"SADD", b"set", b"v", b"w"),
)
"""Fills the database `ORIGINALS`."""
AFRESH: tuple[Command, ...] = (
    (b"SELECT", b"0"),
    (b"FLUSHDB",),
    (b"SELECT", ORIGINALS),
    *((b"COPY", key, key, b"DB", b"0") for key in b"s t string hash list set".split()),
    (b"SELECT", b"0"),
)
"""Makes the database 0 as that one."""
PROBES: tuple[Command, ...] = (
    (b"XINFO", b"STREAM", b"s", b"FULL", b"COUNT", b"0"),
    (b"XPENDING", b"s", b"g", b"-", b"+", b"100"),
    (b"XRANGE", b"t", b"-", b"+"),
    (b"XRANGE", b"u", b"-", b"+"),
    (b"GET", b"string"),
    (b"PEXPIRETIME", b"string"),
    (b"PEXPIRETIME", b"u"),
    (b"LRANGE", b"list", b"0", b"-1"),
    (b"HGETALL", b"hash"),
    (b"KEYS", b"*"),
)
"""Show what a request has changed."""
_SCRIPT = b"return redis.call(unpack(ARGV))"

_MOVED = {b"-": b"9-1", b"+": b"22-1", b"0": b"9-1", b">": b"4-1", b"1-1": b"7-1"}
"""Ids after the first entries."""
_GIVEN = {b"*": b"50-1", b"7-7": b"50-7", b"9-9": b"50-9"}
"""Ids above those of the stream, and none that the server chooses."""

PAYLOAD = b"\x00\x01x\x0a\x00\x22\x80\x86\x5f\xbd\xe8\x48\xd0"
"""What DUMP returns of the string x."""
_READ = (b"GROUP", b"g", b"a")
_MORE: dict[bytes, tuple[tuple[bytes | int, ...], ...]] = {
    b"XREAD": (
        (b"COUNT", 2, b"MAXCOUNT", 2, b"MAXSIZE", 99, b"STREAMS", b"s", b"t", b"4-1", b"0"),
    ),
    b"XREADGROUP": (
        (*_READ, b"MAXCOUNT", 2, b"MAXSIZE", 99, b"STREAMS", b"s", b">"),
        (*_READ, b"COUNT", 2, b"STREAMS", b"s", b"s", b">", b">"),
        (*_READ, b"COUNT", 2, b"MAXCOUNT", 2, b"STREAMS", b"s", b"s", b"s", b"4-1", b">", b"0"),
        (*_READ, b"COUNT", 2, b"CLAIM", 0, b"STREAMS", b"s", b"s", b">", b">"),
        (*_READ, b"CLAIM", 1, b"BLOCK", b"0", b"STREAMS", b"t", b">"),
    ),
    b"RESTORE": (
        (b"u", 1, PAYLOAD),
        (b"u", 1, PAYLOAD, b"ABSTTL"),
        (b"u", b"0", PAYLOAD, b"IDLETIME", 1),
        (b"u", b"0", PAYLOAD, b"FREQ", 1),
    ),
    b"XSETTLE": ((b"s", b"g", b"a", b"SILENT", b"DELAY", 1, b"IDS", b"2", b"1-1", b"7-1"),),
}
"""Usages whose options only together do what is to be tested; integers are numbers to replace."""


def small_blocks(patches: pytest.MonkeyPatch) -> None:
    """Give new stores blocks of eight entries and of eight pending entries."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", 500)
    patches.setattr(pending, "PENDING_BLOCK_RECORDS", 8)


class Case(NamedTuple):
    """A request with one number or all numbers replaced. ``usage`` is what it was made from."""

    words: Words
    usage: Words
    label: str
    form: str


class Unlike(NamedTuple):
    """What went wrong after a case."""

    case: Case
    what: str

    def __str__(self) -> str:
        shown = " ".join(repr(word)[2:-1] for word in self.case.words)
        return f"{self.case.form}: {shown}\n    {self.what}"


def all_usages(name: bytes) -> list[Words]:
    """Return the usages of a command, each also with its ids moved."""
    found: dict[Words, Words] = {}
    more = [(*name.split(b"|"), *map(_word, one)) for one in _MORE.get(name, ())]
    for usage in (*marked_usages(name), *more):
        if not name.startswith(b"X"):
            found.setdefault(usage, usage)
            continue
        given = tuple(_exchanged(word, _GIVEN) for word in usage)
        for words in (given, tuple(_exchanged(word, _MOVED) for word in given)):
            found.setdefault(words, words)
    return list(found)


def _word(value: bytes | int) -> bytes:
    if isinstance(value, bytes):
        return value
    number = Number(b"%d" % value)
    number.label = "together"
    return number


def _exchanged(word: bytes, values: dict[bytes, bytes]) -> bytes:
    label = "id"
    if isinstance(word, Number):
        label = word.label
        if not word.is_id:
            return word
    elif word == b"0":
        return word
    if word not in values:
        return word
    made = Number(values[word])
    made.label, made.is_id = label, True
    return made


def cases(
    name: bytes, near: Sequence[int], edges: Sequence[int] = EDGES, most: int = 1000
) -> Iterator[Case]:
    """Yield the cases of a command. A number gets the values of ``near`` in the first two usages that
    have it, and the first of them in the others, up to ``most`` usages. The first value is sent in each form;
    for the others forms take turns. Ids and numbers of arguments get a twentieth of ``near``."""
    seen: dict[str, int] = {}
    turn = 0
    for usage in all_usages(name):
        numbers = {at: word for at, word in enumerate(usage) if isinstance(word, Number)}
        together = [at for at, word in numbers.items() if not (word.is_id or word.counts)]
        for chosen in [[at] for at in numbers] + ([together] if len(together) > 1 else []):
            label = "+".join(numbers[at].label for at in chosen)
            seen[label] = seen.get(label, 0) + 1
            if seen[label] > most:
                continue
            first = numbers[chosen[0]]
            below = near if seen[label] <= 2 else near[:1]
            if first.is_id or first.counts:
                below = below[::20]
            values = _values(below, edges, is_id=first.is_id)
            for number, value in enumerate(values):
                words = tuple(
                    value if at in chosen else bytes(word) for at, word in enumerate(usage)
                )
                for form in FORMS if not number else (FORMS[turn % len(FORMS)],):
                    yield Case(words, usage, label, form)
                turn += 1


def _values(near: Sequence[int], edges: Sequence[int], *, is_id: bool) -> Iterator[bytes]:
    for value in (*(2**63 - 1 - k for k in near), *edges):
        yield b"%d" % value
    if is_id:
        for value in (*(2**64 - 1 - k for k in near), *edges[:10:3]):
            yield b"%d-%d" % (value, value)
            yield b"4-%d" % value


def known_difference(name: bytes, case: Case, what: str) -> str:
    """Return the name of the difference that explains another reply to a case; empty if there is none."""
    for label in case.label.split("+"):
        if f"{name.decode()} {label}" in differences.NUMBERS:
            return f"{name.decode()} {label}"
    words = {word.upper() for word in case.words}
    if b"~" in words and words & {b"DELREF", b"ACKED"}:
        return "approximate-modes"
    explained, error = _EXPLAINED.get(name, ("", ""))
    return explained if error in what else ""


def framed(case: Case) -> list[Command]:
    """Return the commands that send a case in its form."""
    if case.form == "multi":
        return [(b"MULTI",), case.words, (b"EXEC",)]
    return [(b"EVAL", _SCRIPT, b"0", *case.words)] if case.form == "script" else [case.words]


class Ours:
    """Headwater in this process, with a client for each protocol version. Its clock does not move."""

    def __init__(self, now_ms: int) -> None:
        self.store = LocalStore(clock=ManualClock(now_ms), config=Config(port=0, save=()))
        self._clients: dict[int, LocalClient] = {}
        self.run(SCENE, 2)

    def now_ms(self) -> int:
        return self.store.clock.now_ms()

    def run(self, commands: Sequence[Command], resp: int) -> list[Reply]:
        """Return the replies. Requests that block are unblocked."""
        client = self._clients.get(resp)
        if client is None or client.session.closing or client.session.closed:
            client = self._clients[resp] = self.store.client(resp=resp)
        found: list[Reply] = []
        for command in commands:
            client.send(*command)
            if client.session.blocked:
                self.store.node.next_deadline()
                self.store.node.blocked.unblock(client.session, error=False)
                self.store.node.tick()
            reply = client.reply()
            assert reply is not None, f"no reply to {command!r}"
            found.append(reply)
        self.store.node.next_deadline()
        self.store.node.tick()
        return found

    def problem(self) -> str:
        """Return what is wrong with the state after a command; nothing if all is well."""
        broken = broken_invariants(self.store.node.keyspace)
        if broken:
            return f"broken: {broken[:3]}"
        self.store.node.tick()
        before = picture(self.store.node.keyspace)
        self.store.node.close()
        self.store.crash()
        same = picture(self.store.node.keyspace) == before
        return "" if same else "the journal restores a different state"


class Theirs:
    """A real server, with a connection for each protocol version."""

    def __init__(self, server: Peer) -> None:
        self._connections = {resp: Connection(server) for resp in (2, 3)}
        for resp, connection in self._connections.items():
            connection.prepare(resp)
        self.hidden = differences.hidden_fields(server.name) | differences.unlike_fields(
            server.name
        )

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def run(self, commands: Sequence[Command], resp: int) -> list[Reply]:
        """Return the replies."""
        return self._connections[resp].run(commands)

    def close(self) -> None:
        """Reset the server for other tests, and close the connections."""
        for resp, connection in self._connections.items():
            connection.prepare(resp)
            connection.close()


class Numbers:
    """A run over commands. ``failures`` has what went wrong, ``requests`` the number of cases, ``compared``
    the number of those compared with ``theirs``."""

    def __init__(
        self,
        near: Sequence[int],
        theirs: Theirs | None = None,
        *,
        edges: Sequence[int] = EDGES,
        most: int = 1000,
    ) -> None:
        self.near, self.edges, self.most = near, edges, most
        self.theirs = theirs
        self.requests = self.compared = 0
        self.failures: list[Unlike] = []
        self.differences: dict[str, Unlike] = {}
        """An example of each known difference."""
        self._afresh = True

    def command(self, name: bytes) -> None:
        """Test one command."""
        ours = self._begun(time.time_ns() // 1_000_000)
        case = None
        for case in cases(name, self.near, self.edges, self.most):
            self.requests += 1
            what = self._case(name, ours, case)
            if what.startswith(FAILED) or name == b"CLIENT|PAUSE":
                ours = self._begun(ours.now_ms())
            difference = known_difference(name, case, what) if what.startswith(OTHER) else ""
            if difference:
                self.differences[difference] = Unlike(case, what)
            elif what:
                self.failures.append(Unlike(case, what))
        problem = ours.problem()
        if case is not None and problem:
            self.failures.append(Unlike(case, f"after the command: {problem}"))

    def _begun(self, now_ms: int) -> Ours:
        """Return a new store, and prepare the other server."""
        if self.theirs is not None:
            self.theirs.run(SCENE, 2)
        self._afresh = True
        return Ours(now_ms)

    def _case(self, name: bytes, ours: Ours, case: Case) -> str:
        compare = self.theirs is not None and not ({name, *case.usage} & (NEWER | ONLY_OURS))
        resp = 3 if case.form == "resp3" else 2
        writes = BY_FULL_NAME[name.decode().lower()].writes
        if compare and name in BLOCKING and case.form in ("resp2", "resp3"):
            case = case._replace(form="multi")
        before = AFRESH if writes or self._afresh else ()
        commands = [*before, *framed(case), *(PROBES if writes else ())]
        self._afresh = False
        try:
            we = ours.run(commands, resp)
        except Exception as error:
            return f"{FAILED} {error!r}"
        failed = [one for one in we[len(before) :] if _is_internal(one)]
        if failed:
            return f"{FAILED} {failed[0]!r}"
        if not compare or self.theirs is None:
            return ""
        they = self.theirs.run(commands, resp)
        self.compared += 1
        return self._difference(name, case, commands, (we, ours), (they, self.theirs))

    def _difference(
        self,
        name: bytes,
        case: Case,
        commands: list[Command],
        *sides: tuple[list[Reply], Ours | Theirs],
    ) -> str:
        assert self.theirs is not None
        if case.form == "script":
            commands = [case.words if one[0] == b"EVAL" else one for one in commands]
        found = [
            comparable(commands, replies, Circumstances(side.now_ms(), self.theirs.hidden))
            for replies, side in sides
        ]
        for at, (we, they) in enumerate(zip(*found, strict=True)):
            if we == they or (name in UNLIKE and _failures(we) == _failures(they)):
                continue
            return f"{OTHER} {commands[at]!r}\n    we:   {_cut(we)}\n    they: {_cut(they)}"
        return ""


def _failures(reply: Reply) -> list[Failure]:
    parts = reply if isinstance(reply, list) else [reply]
    return [part for part in parts if isinstance(part, Failure)]


def _is_internal(reply: Reply) -> bool:
    return any(b"internal error" in one.text or b"MISCONF" in one.text for one in _failures(reply))


def _cut(reply: Reply) -> str:
    text = repr(reply)
    return text if len(text) <= 400 else f"{text[:300]} … {text[-90:]}"


def numeric_names() -> list[bytes]:
    """Return the commands that have a numeric argument."""
    return [
        name
        for name in names()
        if any(isinstance(word, Number) for usage in all_usages(name) for word in usage)
    ]


def digests(name: bytes) -> list[str]:
    """Return a digest of the replies to each case of a command, and of the state after it. The clock stands
    still, so they do not depend on the run."""
    ours, found = Ours(START_MS), []
    for case in cases(name, (0, 1), EDGES[::5], most=2):
        resp = 3 if case.form == "resp3" else 2
        replies = ours.run([*AFRESH, *framed(case), *PROBES], resp)
        found.append(sha256(repr(replies).encode()).hexdigest()[:16])
    return found


if __name__ == "__main__":
    small_blocks(pytest.MonkeyPatch())
    print(json.dumps({name: digests(name.encode()) for name in sys.argv[1:]}))
