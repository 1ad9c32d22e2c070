"""RESTORE: create a key from a payload of DUMP, made by this or another server.

    payload ── steps ──▶ image ── admitted, numbered ──▶ value and facts, in a separate keyspace
                                                           │ steps
                          the key, one record group ◀──────┘ in one turn

Rule 1. A small payload is restored while the command runs. A large one is read and built by an offloaded
        job (jobs.py): the same mutators build the value in a separate keyspace, which no other command sees, and
        write the same facts. Then value and facts are moved in one step.
Rule 2. Conditions that other commands can change are checked when the value is stored: that the key is
        free, that the expiry has not passed, that the journal has room. A relative time to live begins at that
        moment.

Source: Redis's command page and cluster.c (restoreCommand).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.commands.call import SYNTAX, Call, new_number
from headwater.commands.jobs import Job, carry_out, may_offload
from headwater.commands.keys import notify_overwritten
from headwater.commands.stream_images import Restoration, retime
from headwater.commands.times import WallOffset
from headwater.common.limits import LARGE_PAYLOAD_BYTES, MAX_RECORD_GROUP_BYTES
from headwater.common.steps import Steps, do_all
from headwater.engine.facts.facts import HEADROOM, FactBuffer
from headwater.engine.keyspace.events import GENERIC
from headwater.engine.keyspace.garbage import FREED_AT_ONCE, dismantle, free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.copying import PREFIX_BYTES
from headwater.errors import CommandError
from headwater.rdb.errors import BadEnvelope, BadPayload, ValueTooLarge
from headwater.rdb.image import HashImage, ListImage, SetImage, StreamImage
from headwater.rdb.values import load
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

BAD_ENVELOPE = "ERR DUMP payload version or checksum are wrong"
BAD_FORMAT = "ERR Bad data format"

_PER_TEXT = 8
"""Upper bound for the bytes that a text takes in a fact in addition to its own."""

_TEXTS_AT_ONCE = 1024
"""Maximum number of members or pairs in one fact, and in one step."""

Texts = bytes | HashImage | ListImage | SetImage


class _Options:
    """The options after ``RESTORE key ttl payload``."""

    def __init__(self, arguments: Arguments) -> None:
        self.replace = False
        self.absolute = False
        self.idle_s = 0
        given = b""
        index = 4
        while index < arguments.count:
            word = arguments.token(index)
            more = index + 1 < arguments.count
            if word == b"REPLACE":
                self.replace = True
            elif word == b"ABSTTL":
                self.absolute = True
            elif word in _USE and more and given in (b"", word):
                given = word
                index += 1
                self._take_use(arguments, index, word)
            else:
                raise CommandError(SYNTAX)
            index += 1

    def _take_use(self, arguments: Arguments, index: int, word: bytes) -> None:
        most, refusal = _USE[word]
        number = arguments.integer(index)
        if not 0 <= number <= most:
            raise CommandError(refusal)
        if word == b"IDLETIME":
            self.idle_s = number


_USE = {
    b"IDLETIME": (2**63 - 1, "ERR Invalid IDLETIME value, must be >= 0"),
    b"FREQ": (255, "ERR Invalid FREQ value, must be >= 0 and <= 255"),
}
"""Option for the idle time (which OBJECT IDLETIME shows) or the frequency → the maximum and the error."""


def restore(call: Call) -> Job | None:
    """RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n] → OK.

    If the expiry has already passed, the old value is deleted and no new value is stored.
    """
    arguments = call.arguments
    size = arguments.ends[3] - arguments.starts[3]
    offloaded = size >= LARGE_PAYLOAD_BYTES and may_offload(call)
    if offloaded:
        arguments = arguments.copy()
        data, start = arguments.buffer, arguments.starts[3]
    else:
        data, start = bytearray(arguments.bytes(3)), 0
    restoring = _Restoring(call, arguments, offloaded=offloaded)
    steps = _read(data, start, start + size, call.wall.copy())
    job = Job(arguments, steps, restoring.take_content)
    if offloaded:
        return job
    carry_out(call, job)
    return None


class _Content:
    """The value of a payload, checked as far as possible without a keyspace."""

    def __init__(self, value: Restoration | Texts) -> None:
        self.value = value
        if isinstance(value, Restoration):
            self.size = value.size
            self.groups = len(value.image.groups)
        else:
            self.size, self.groups = 0, 0


def _read(data: bytearray, start: int, end: int, wall: WallOffset) -> Steps[_Content]:
    """Parse a payload. Raises `CommandError` if it is damaged."""
    try:
        image = yield from load(data, start, end)
    except BadEnvelope:
        raise CommandError(BAD_ENVELOPE) from None
    except ValueTooLarge as error:
        raise CommandError(f"ERR {error}") from None
    except BadPayload:
        raise CommandError(BAD_FORMAT) from None
    if not isinstance(image, StreamImage):
        content = _Content(image)
        content.size = yield from _texts_bytes(image)
        return content
    if wall.ahead_ms:
        yield from retime(image, wall.steady_ms)
    restoration = Restoration(image)
    yield from restoration.prepare()
    return _Content(restoration)


class _Restoring:
    """A RESTORE in progress. The constructor checks the request. It raises `CommandError`, such as BUSYKEY."""

    def __init__(self, call: Call, arguments: Arguments, *, offloaded: bool) -> None:
        self.arguments = arguments
        self.options = _Options(arguments)
        self.key = arguments.bytes(1)
        self.offloaded = offloaded
        self._check_free(call)
        self._ends_at(call)

    def take_content(self, call: Call, content: _Content) -> Job | None:
        """Continue with a valid payload. Store its value, or return the job that builds the value."""
        value, keyspace = content.value, call.keyspace
        sid, gid = keyspace.next_sid, keyspace.next_gid
        if isinstance(value, Restoration):
            new_number(sid)
            new_number(gid, content.groups)
        if isinstance(value, bytes) or not self.offloaded:
            self._finish(call, lambda: self._place(call, content), _bound(content, self.key))
            return None
        _admit(call, _bound(content, self.key))
        if isinstance(value, Restoration):
            keyspace.next_sid, keyspace.next_gid = sid + 1, gid + content.groups
        steps = _build(_room(call, sid), self.key, value, gid)

        def discard(built: Keyspace) -> None:
            keyspace.garbage += dismantle(built)

        def take_built(later: Call, built: Keyspace) -> Job | None:
            if later.keyspace is not keyspace:  # after DEBUG RELOAD, sid and gids may be in use
                discard(built)
                return self.take_content(later, content)
            facts = built.facts.data
            try:
                self._finish(later, lambda: self._adopt(later, built), len(facts))
            finally:
                discard(built)
            return None

        return Job(self.arguments, steps, take_built, discard)

    def _adopt(self, call: Call, built: Keyspace) -> None:
        """Move the value and its facts from the keyspace in which it was built."""
        value = built.databases[call.db.index].values.pop(self.key)
        built.streams.clear()
        built.groups.clear()
        call.db.adopt(self.key, value, built.facts.data, now_ms=call.now_ms)

    def _place(self, call: Call, content: _Content) -> None:
        """Store the value in the call's database, replacing an old one."""
        if not isinstance(content.value, Restoration) and self.key in call.db.values:
            call.db.delete(
                self.key
            )  # otherwise the elements would be added to the old, perhaps expired value
        do_all(_apply(call, self.key, content.value, call.keyspace.next_gid))

    def _finish(self, call: Call, place: Any, size: int) -> None:
        """Check the conditions again, store the value by ``place``, with at most ``size`` bytes of facts, and reply."""
        there = self._check_free(call)
        at_ms = self._ends_at(call)
        key, db = self.key, call.db
        if at_ms is not None and at_ms <= call.now_ms:
            if there is not None:
                _give_up(call, key)
        else:
            _admit(call, size + 2 * HEADROOM + 2 * len(key))
            place()
            if at_ms is not None:
                db.set_expiry(key, at_ms)
            call.modified(key)
            call.notify(GENERIC, b"restore", key)
            value = db.values[key]
            notify_overwritten(call, key, there, value)
            db.use(key, value, max(0, call.now_ms - self.options.idle_s * 1000))
        call.reply.ok()

    def _check_free(self, call: Call) -> Any:
        """Return the value to be replaced; None if the key is free. Raises BUSYKEY if REPLACE would be needed."""
        there = call.db.lookup(self.key, call.now_ms)
        if there is not None and not self.options.replace:
            raise CommandError("BUSYKEY Target key name already exists.")
        return there

    def _ends_at(self, call: Call) -> int | None:
        """Return the steady time at which the key expires; None without an expiry."""
        ttl, absolute = self.arguments.integer(2), self.options.absolute
        at_ms = ttl if absolute else call.now_ms + ttl
        if ttl < 0 or at_ms >= 2**63:
            raise CommandError("ERR Invalid TTL value, must be >= 0")
        if not ttl:
            return None
        return call.wall.steady_ms(at_ms) if absolute else at_ms


def _give_up(call: Call, key: bytes) -> None:
    """Delete the old value instead of replacing it: the new value has already expired."""
    call.admit(HEADROOM + len(key))
    call.db.delete(key)
    call.modified(key)
    call.notify(GENERIC, b"del", key)


def _admit(call: Call, size: int) -> None:
    """Admit ``size`` bytes of facts. Raises `CommandError` if recovery would reject a record group of this size."""
    if size > MAX_RECORD_GROUP_BYTES:
        raise CommandError(BAD_FORMAT)
    call.admit(size)


# --- the value ------------------------------------------------------------------------------------


def _bound(content: _Content, key: bytes) -> int:
    """Return an upper bound for the facts of `_apply`, in bytes."""
    value, facts = content.value, 5
    if isinstance(value, tuple):
        facts += len(value[0]) // _TEXTS_AT_ONCE
    return content.size + facts * (HEADROOM + len(key))


def _room(call: Call, sid: int) -> Call:
    """Return a call in a new keyspace, in which a value for the database of ``call`` is built."""
    keyspace = Keyspace(FactBuffer(muted=call.keyspace.facts.muted))
    keyspace.facts.data += bytes(PREFIX_BYTES)
    keyspace.next_sid = sid
    for name in ("block_bytes", "least", "most"):
        setattr(keyspace.sealing, name, getattr(call.keyspace.sealing, name))
    made = Call(keyspace, ReplyWriter(bytearray()))
    made.db, made.settings = keyspace.databases[call.db.index], call.settings
    made.now_ms = call.now_ms
    return made


def _build(call: Call, key: bytes, value: Restoration | Texts, first_gid: int) -> Steps[Keyspace]:
    """Build the value in the call's keyspace and return the keyspace. Free the keyspace if that fails."""
    try:
        yield from _apply(call, key, value, first_gid)
    except BaseException:
        garbage = dismantle(call.keyspace)
        while garbage:
            free(garbage, FREED_AT_ONCE)
        raise
    return call.keyspace


def _apply(call: Call, key: bytes, value: Restoration | Texts, first_gid: int) -> Steps[None]:
    """Store the value at ``key``. The caller must have called `Call.admit` and, unless the new value is a stream,
    deleted the old one."""
    if isinstance(value, Restoration):
        yield from value.apply(call, key, first_gid)
    elif isinstance(value, bytes):
        call.db.set_string(key, value)
    else:
        parts: Sequence[Any] = value[0]
        for at in range(0, len(parts), _TEXTS_AT_ONCE):
            piece = parts[at : at + _TEXTS_AT_ONCE]
            if isinstance(value, HashImage):
                call.db.set_fields(key, piece)
            elif isinstance(value, ListImage):
                call.db.push(key, piece, left=False)
            else:
                call.db.add_members(key, piece)
            yield


def _texts_bytes(image: Texts) -> Steps[int]:
    """Return an upper bound for the bytes that the texts of a value take in facts."""
    if isinstance(image, bytes):
        return len(image) + _PER_TEXT
    size = 0
    for number, part in enumerate(image[0], 1):
        texts: Sequence[Any] = (part,) if isinstance(part, bytes) else part
        size += sum(len(text) + _PER_TEXT for text in texts)
        if number % _TEXTS_AT_ONCE == 0:
            yield
    return size
