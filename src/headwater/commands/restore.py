"""RESTORE: a key of a payload that DUMP has made, here or on another server.

    payload ── steps ──▶ image ── admitted, numbered ──▶ value and facts, in a keyspace of its own
                                                           │ steps
                          key there, one record group ◀────┘ in one turn

Rule 1. A small payload becomes a key where the command runs. A large one is read and built off the loop
        (jobs.py): the same mutators build the value in a keyspace that nobody else sees, and write the
        same facts. Then value and facts are taken over at once.
Rule 2. What can change meanwhile is looked at when the value is put there, and only then counts: whether
        the key is free, whether its time has come, whether the journal has room. A time to live begins
        then.

Source: Redis's command page and cluster.c (restoreCommand).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.commands.call import SYNTAX, Call
from headwater.commands.jobs import Job, carry_out, may_offload
from headwater.commands.keys import notify_overwritten
from headwater.commands.stream_images import Restoration, retime
from headwater.commands.times import WallOffset
from headwater.engine.copying import PREFIX_BYTES
from headwater.engine.events import GENERIC
from headwater.engine.facts import HEADROOM, FactBuffer
from headwater.engine.garbage import FREED_AT_ONCE, dismantle, free
from headwater.engine.keyspace import Keyspace
from headwater.errors import CommandError
from headwater.limits import LARGE_PAYLOAD_BYTES, MAX_RECORD_GROUP_BYTES
from headwater.rdb.errors import BadEnvelope, BadPayload
from headwater.rdb.image import HashImage, ListImage, SetImage, StreamImage
from headwater.rdb.values import load
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from headwater.steps import Steps, do_all

BAD_ENVELOPE = "ERR DUMP payload version or checksum are wrong"
BAD_FORMAT = "ERR Bad data format"

_PER_TEXT = 8
"""What a text takes in a fact beside its bytes, at most."""

_TEXTS_AT_ONCE = 1024
"""Members or pairs of one fact, and of one step."""

Texts = bytes | HashImage | ListImage | SetImage


class _Options:
    """What stands behind RESTORE key ttl payload."""

    def __init__(self, arguments: Arguments) -> None:
        self.replace = False
        self.absolute = False
        self.idle_s = 0
        told = b""
        index = 4
        while index < arguments.count:
            word = arguments.token(index)
            more = index + 1 < arguments.count
            if word == b"REPLACE":
                self.replace = True
            elif word == b"ABSTTL":
                self.absolute = True
            elif word in _USE and more and told in (b"", word):
                told = word
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
"""How long a value was not used, which OBJECT IDLETIME shows, or how often it was."""


def restore(call: Call) -> Job | None:
    """RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n] → OK.

    With a time that has come already, what was there goes and nothing takes its place.
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
    """What a payload holds, looked at as far as that goes without a keyspace."""

    def __init__(self, value: Restoration | Texts) -> None:
        self.value = value
        if isinstance(value, Restoration):
            self.size = value.size
            self.groups = len(value.image.groups)
        else:
            self.size, self.groups = 0, 0


def _read(data: bytearray, start: int, end: int, wall: WallOffset) -> Steps[_Content]:
    """The content of a payload. Raises `CommandError`."""
    try:
        image = yield from load(data, start, end)
    except BadEnvelope:
        raise CommandError(BAD_ENVELOPE) from None
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
    """One RESTORE under way. Raises `CommandError` when it cannot begin."""

    def __init__(self, call: Call, arguments: Arguments, *, offloaded: bool) -> None:
        self.arguments = arguments
        self.options = _Options(arguments)
        self.key = arguments.bytes(1)
        self.offloaded = offloaded
        self._check_free(call)
        self._ends_at(call)

    def take_content(self, call: Call, content: _Content) -> Job | None:
        """The payload was sound: put its value there, or have it built."""
        value = content.value
        if isinstance(value, bytes) or not self.offloaded:
            self._finish(call, lambda: self._place(call, content), _bound(content, self.key))
            return None
        _admit(call, _bound(content, self.key))
        keyspace = call.keyspace
        sid, gid = keyspace.next_sid, keyspace.next_gid
        if isinstance(value, Restoration):
            keyspace.next_sid, keyspace.next_gid = sid + 1, gid + content.groups
        steps = _build(_room(call, sid), self.key, value, gid)

        def discard(built: Keyspace) -> None:
            keyspace.garbage += dismantle(built)

        def take_built(later: Call, built: Keyspace) -> Job | None:
            if later.keyspace is not keyspace:  # DEBUG RELOAD: the numbers may be somebody's there
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
        """Take the value over from the keyspace that it was built in."""
        value = built.databases[call.db.index].values.pop(self.key)
        built.streams.clear()
        built.groups.clear()
        call.db.adopt(self.key, value, built.facts.data, now_ms=call.now_ms)

    def _place(self, call: Call, content: _Content) -> None:
        if not isinstance(content.value, Restoration) and self.key in call.db.values:
            call.db.delete(self.key)  # Or what was there, perhaps already over, would be added to.
        do_all(_apply(call, self.key, content.value, call.keyspace.next_gid))

    def _finish(self, call: Call, place: Any, size: int) -> None:
        """Let ``place`` put the value there, as one group of facts of so many bytes at most."""
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
            notify_overwritten(call, key, there, db.values[key])
            db.use(key, max(0, call.now_ms - self.options.idle_s * 1000))
        call.reply.ok()

    def _check_free(self, call: Call) -> Any:
        """What stands at the key and is to be replaced, None if nothing does."""
        there = call.db.lookup(self.key, call.now_ms)
        if there is not None and not self.options.replace:
            raise CommandError("BUSYKEY Target key name already exists.")
        return there

    def _ends_at(self, call: Call) -> int | None:
        """When the key is to end, a steady time; None without a time."""
        ttl, absolute = self.arguments.integer(2), self.options.absolute
        at_ms = ttl if absolute else call.now_ms + ttl
        if ttl < 0 or at_ms >= 2**63:
            raise CommandError("ERR Invalid TTL value, must be >= 0")
        if not ttl:
            return None
        return call.wall.steady_ms(at_ms) if absolute else at_ms


def _give_up(call: Call, key: bytes) -> None:
    """The value has ended before it came: what it was to replace goes, and that is all."""
    call.admit(HEADROOM + len(key))
    call.db.delete(key)
    call.modified(key)
    call.notify(GENERIC, b"del", key)


def _admit(call: Call, size: int) -> None:
    """Ask the journal, but for no group that it would not believe when it reads it back."""
    if size > MAX_RECORD_GROUP_BYTES:
        raise CommandError(BAD_FORMAT)
    call.admit(size)


# --- the value ------------------------------------------------------------------------------------


def _bound(content: _Content, key: bytes) -> int:
    """An upper bound for the facts of `_apply`."""
    value, facts = content.value, 5
    if isinstance(value, tuple):
        facts += len(value[0]) // _TEXTS_AT_ONCE
    return content.size + facts * (HEADROOM + len(key))


def _room(call: Call, sid: int) -> Call:
    """A call in a keyspace of its own, where a value for the database of ``call`` is built."""
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
    try:
        yield from _apply(call, key, value, first_gid)
    except BaseException:
        garbage = dismantle(call.keyspace)
        while garbage:
            free(garbage, FREED_AT_ONCE)
        raise
    return call.keyspace


def _apply(call: Call, key: bytes, value: Restoration | Texts, first_gid: int) -> Steps[None]:
    """Put the value at ``key``; admitted before. What is no stream finds nothing there."""
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
    """What the texts of a value take in facts."""
    if isinstance(image, bytes):
        return len(image) + _PER_TEXT
    size = 0
    for number, part in enumerate(image[0], 1):
        texts: Sequence[Any] = (part,) if isinstance(part, bytes) else part
        size += sum(len(text) + _PER_TEXT for text in texts)
        if number % _TEXTS_AT_ONCE == 0:
            yield
    return size
