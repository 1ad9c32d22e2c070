"""Idempotent producers: IDMP and IDMPAUTO of XADD, XCFGSET and XIDMPRECORD.

A producer gives its own name (pid) and an identifier of each entry that it adds (iid). While a stream remembers
the pair, XADD replies with the id of the existing entry and adds nothing.

Source: redis.io, Idempotent message processing, XCFGSET, XIDMPRECORD.
"""

from __future__ import annotations

from hashlib import blake2b

from headwater.commands.call import NO_SUCH_KEY, SYNTAX, Call
from headwater.common.limits import MAX_ENTRIES_COUNT, MAX_IDMP_DURATION_S, MAX_IDMP_MAXSIZE
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_HASH_BYTES = 16
_WRAP = (1 << 8 * _HASH_BYTES) - 1


class IdempotentID:
    """The pid and iid of an XADD. With IDMPAUTO, the iid is the `content_hash` of the fields."""

    OPTIONS = (b"IDMP", b"IDMPAUTO")

    def __init__(self, pid: bytes, iid: bytes | None) -> None:
        self.pid = pid
        self.iid = iid
        """None with IDMPAUTO until `choose` is called."""

    @classmethod
    def taken(
        cls, arguments: Arguments, index: int, before: IdempotentID | None
    ) -> tuple[IdempotentID | None, int]:
        """Parse the option at ``index``. Return the pair and the index after the option. If too few arguments
        follow, the word is not an option: return ``before``, the pair parsed earlier, and ``index``."""
        word = arguments.token(index)
        values = 2 if word == b"IDMP" else 1
        if index + values >= arguments.count:
            return before, index
        if before is not None:
            raise CommandError(f"{SYNTAX}, IDMP/IDMPAUTO specified multiple times")
        pid, iid = arguments.bytes(index + 1), None
        name = word.decode()
        if not pid:
            raise CommandError(f"{SYNTAX}, {name} requires a non-empty producer ID")
        if values == 2:
            iid = arguments.bytes(index + 2)
            if not iid:
                raise CommandError(f"{SYNTAX}, {name} requires a non-empty idempotent ID")
        return cls(pid, iid), index + 1 + values

    @staticmethod
    def refuse_explicit_id() -> None:
        """Raise `CommandError` for an explicit id: a repeated command might have a different one."""
        raise CommandError(f"{SYNTAX}, IDMP/IDMPAUTO can be used only with auto-generated IDs")

    def choose(self, arguments: Arguments, start: int) -> None:
        """Set the iid if IDMPAUTO was given. The fields and values are the arguments from ``start`` on."""
        if self.iid is None:
            self.iid = content_hash(arguments.values(start))

    def repeats(self, call: Call, stream: StoredStream) -> bool:
        """Return whether ``stream`` remembers the pair. If so, count a duplicate and write the reply, without an event,
        without breaking a WATCH and without trimming."""
        assert self.iid is not None
        known = stream.idempotency.find(self.pid, self.iid)
        if known is None:
            return False
        call.admit(HEADROOM)
        before = stream.idempotency.duplicates
        stream.idempotency.count_duplicate(min(before + 1, MAX_ENTRIES_COUNT))
        call.keyspace.dirty += 1
        call.reply.id(*known)
        return True

    def fact_bytes(self) -> int:
        """Return an upper bound for the fact of `record`, in bytes."""
        assert self.iid is not None
        return HEADROOM + len(self.pid) + len(self.iid)

    def record(self, call: Call, stream: StoredStream, entry_id: tuple[int, int]) -> None:
        """Remember that the entry ``entry_id`` has the pair. The caller must have called `Call.admit`."""
        assert self.iid is not None
        stream.idempotency.record(self.pid, self.iid, entry_id, now_ms=call.now_ms)


def content_hash(words: list[bytes]) -> bytes:
    """Return the iid of IDMPAUTO: 16 bytes that depend on the fields and values, but not on their order.

    >>> content_hash([b"a", b"1", b"b", b"2"]) == content_hash([b"b", b"2", b"a", b"1"])
    True

    Each pair is hashed with the length of its field, so that different pairs have different hashes. The
    hashes are summed as well as xored, because a repeated pair cancels itself out in an xor.
    """
    total = mixed = 0
    for field, value in zip(words[::2], words[1::2], strict=True):
        found = blake2b(b"%d:" % len(field), digest_size=_HASH_BYTES)
        found.update(field)
        found.update(value)
        number = int.from_bytes(found.digest(), "little")
        total = (total + number) & _WRAP
        mixed ^= number
    both = total.to_bytes(_HASH_BYTES, "little") + mixed.to_bytes(_HASH_BYTES, "little")
    return blake2b(both, digest_size=_HASH_BYTES).digest()


def xcfgset(call: Call) -> None:
    """XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE n] → OK; changing a setting forgets all iids."""
    arguments = call.arguments
    stream = call.stream(arguments.bytes(1))
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    bounds = {
        b"IDMP-DURATION": (MAX_IDMP_DURATION_S, "seconds"),
        b"IDMP-MAXSIZE": (MAX_IDMP_MAXSIZE, "entries"),
    }
    given: dict[bytes, int] = {}
    for index in range(2, arguments.count, 2):
        word = arguments.token(index)
        if word not in bounds or index + 1 == arguments.count:
            raise CommandError(SYNTAX)
        if word in given:
            raise CommandError(f"ERR {word.decode()} specified multiple times")
        value, (most, unit) = arguments.integer(index + 1), bounds[word]
        if not 1 <= value <= most:
            raise CommandError(f"ERR {word.decode()} must be between 1 and {most} {unit}")
        given[word] = value
    if not given:
        raise CommandError("ERR At least one parameter must be specified")
    known = stream.idempotency
    before = (known.duration_s, known.maxsize)
    wanted = (given.get(b"IDMP-DURATION", before[0]), given.get(b"IDMP-MAXSIZE", before[1]))
    if wanted != before:
        call.admit(HEADROOM)
        known.configure(*wanted)
        call.keyspace.dirty += 1
    call.reply.ok()


def xidmprecord(call: Call) -> None:
    """XIDMPRECORD key pid iid id → OK: remember that the existing entry ``id`` has the pair.

    For tools that rebuild a stream. Redis writes this command when it rewrites its append-only file.
    """
    arguments = call.arguments
    entry_id = arguments.id(4)
    pid, iid = arguments.bytes(2), arguments.bytes(3)
    if not pid:
        raise CommandError("ERR producer ID must be non-empty")
    if not iid:
        raise CommandError("ERR idempotent ID must be non-empty")
    stream = call.stream(arguments.bytes(1))
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    if not stream.log.contains(*entry_id):
        raise CommandError("ERR No such message in stream")
    known = stream.idempotency.find(pid, iid)
    if known is None:
        call.admit(HEADROOM + len(pid) + len(iid))
        stream.idempotency.record(pid, iid, entry_id, now_ms=call.now_ms)
        call.keyspace.dirty += 1
    elif known != entry_id:
        raise CommandError("ERR IID already exists for this producer with a different stream ID")
    call.reply.ok()
