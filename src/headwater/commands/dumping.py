"""DUMP and RESTORE: a value as bytes that another store, Headwater, Redis or Valkey, can read.

Source: Redis's command pages and cluster.c (dumpCommand, restoreCommand).
"""

from __future__ import annotations

from collections import deque

from headwater.commands.call import SYNTAX, Call
from headwater.commands.events import GENERIC
from headwater.commands.moving import notify_overwritten
from headwater.commands.stream_images import Restoration, image_of
from headwater.engine.database import Value
from headwater.engine.facts import HEADROOM
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.limits import MAX_RECORD_GROUP_BYTES
from headwater.rdb.image import HashImage, Image, ListImage, SetImage, StreamImage
from headwater.rdb.payload import BadEnvelope, BadPayload
from headwater.rdb.values import dump as write
from headwater.rdb.values import load
from headwater.resp.arguments import Arguments

BAD_ENVELOPE = "ERR DUMP payload version or checksum are wrong"
BAD_FORMAT = "ERR Bad data format"

_PER_TEXT = 8
"""What a text takes in a fact beside its bytes, at most."""


def dump(call: Call) -> None:
    """DUMP key → the value as bytes, nil if there is none."""
    value = call.read(call.arguments.bytes(1))
    if value is None:
        call.reply.nil()
    else:
        call.reply.bulk(write(_image(value), call.settings.dump_format))


def _image(value: Value) -> Image:
    if isinstance(value, Stream):
        return image_of(value)
    if isinstance(value, dict):
        return HashImage(list(value.items()))
    if isinstance(value, deque):
        return ListImage(list(value))
    return SetImage(sorted(value)) if isinstance(value, set) else value


class _RestoreOptions:
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


def restore(call: Call) -> None:
    """RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n] → OK.

    With a time that has come already, what was there goes and nothing takes its place.
    """
    arguments, db = call.arguments, call.db
    options = _RestoreOptions(arguments)
    key = arguments.bytes(1)
    there = db.lookup(key, call.now_ms)
    if there is not None and not options.replace:
        raise CommandError("BUSYKEY Target key name already exists.")
    at_ms = _ends_at(arguments, call.now_ms, absolute=options.absolute)
    image = _loaded(arguments.bytes(3))
    if at_ms is not None and at_ms <= call.now_ms:
        if there is not None:
            _give_up(call, key)
    else:
        _place(call, key, image, at_ms)
        notify_overwritten(call, key, there, db.values[key])
        db.use(key, max(0, call.now_ms - options.idle_s * 1000))
    call.reply.ok()


def _ends_at(arguments: Arguments, now_ms: int, *, absolute: bool) -> int | None:
    """When the key is to end, Unix ms; None without a time."""
    ttl = arguments.integer(2)
    at_ms = ttl if absolute else now_ms + ttl
    if ttl < 0 or at_ms >= 2**63:
        raise CommandError("ERR Invalid TTL value, must be >= 0")
    return at_ms if ttl else None


def _loaded(payload: bytes) -> Image:
    try:
        return load(payload)
    except BadEnvelope:
        raise CommandError(BAD_ENVELOPE) from None
    except BadPayload:
        raise CommandError(BAD_FORMAT) from None


def _give_up(call: Call, key: bytes) -> None:
    """The value has ended before it came: what it was to replace goes, and that is all."""
    call.admit(HEADROOM + len(key))
    call.db.delete(key)
    call.modified(key)
    call.notify(GENERIC, b"del", key)


def _place(call: Call, key: bytes, image: Image, at_ms: int | None) -> None:
    """Put the value there, as one group of facts."""
    if isinstance(image, StreamImage):
        restoration = Restoration(image)
        _admit(call, restoration.fact_bytes(key) + 2 * len(key))
        restoration.apply(call, key)
    else:
        _place_texts(call, key, image)
    if at_ms is not None:
        call.db.set_expiry(key, at_ms)
    call.modified(key)
    call.notify(GENERIC, b"restore", key)


def _place_texts(call: Call, key: bytes, image: bytes | HashImage | ListImage | SetImage) -> None:
    db = call.db
    if isinstance(image, bytes):
        texts = [image]
    elif isinstance(image, HashImage):
        texts = [text for pair in image.pairs for text in pair]
    else:
        texts = image[0]
    _admit(call, 3 * HEADROOM + 3 * len(key) + sum(len(text) + _PER_TEXT for text in texts))
    if key in db.values:
        db.delete(key)  # Or what was there, perhaps already over, would be added to.
    if isinstance(image, bytes):
        db.set_string(key, image)
    elif isinstance(image, HashImage):
        db.set_fields(key, image.pairs)
    elif isinstance(image, ListImage):
        db.push(key, texts, left=False)
    else:
        db.add_members(key, texts)


def _admit(call: Call, size: int) -> None:
    """Ask the journal, but for no group that it would not believe when it reads it back."""
    if size > MAX_RECORD_GROUP_BYTES:
        raise CommandError(BAD_FORMAT)
    call.admit(size)
