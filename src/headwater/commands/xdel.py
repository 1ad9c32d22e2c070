"""XDEL, XDELEX and XACKDEL: delete entries by id.

XDEL does not change pending lists. For the other commands, the mode determines what happens to references:

    mode      XACKDEL, after acknowledging            XDELEX
    KEEPREF   deletes; stays pending in other groups  deletes; stays pending
    DELREF    deletes, also from pending lists        deletes, also from pending lists
    ACKED     deletes unless still referenced         deletes unless still referenced

An entry is referenced while a group has not read it yet or has it in its pending list.

Source: Redis's command pages and t_stream.c (xdelCommand, xackdelCommand, xdelexCommand).
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.ids import id_list
from headwater.commands.xtrim import ACKED, DELREF, KEEPREF, REFERENCE_MODES, forget
from headwater.common.model import flat_words
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOWHERE
from headwater.engine.keyspace.events import STREAM
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_DELETED, _KEPT, _NONE = 1, 2, -1


class _Deletion:
    """The arguments ``[KEEPREF|DELREF|ACKED] IDS n id …``. The mode may also follow the ids. A second block replaces
    the first. The ids are parsed only when `ids` is called."""

    def __init__(self, arguments: Arguments, index: int) -> None:
        self.arguments = arguments
        self.mode = b""
        self.start = 0
        self.count = 0
        while index < arguments.count:
            word = arguments.token(index)
            if word in REFERENCE_MODES and not self.mode:
                self.mode = word
                index += 1
            elif word == b"IDS" and index + 1 < arguments.count:
                index = self._block(index)
            else:
                raise CommandError(SYNTAX)
        if not self.start:
            raise CommandError("ERR IDS option is required")
        self.mode = self.mode or KEEPREF

    def _block(self, index: int) -> int:
        count = self.arguments.integer(index + 1, default=0)
        if count < 1:
            raise CommandError("ERR Number of IDs must be a positive integer")
        if count > self.arguments.count - index - 2:
            raise CommandError("ERR The `numids` parameter must match the number of arguments")
        self.start, self.count = index + 2, count
        return self.start + count

    def ids(self) -> list[tuple[int, int]]:
        return id_list(self.arguments, self.start, self.start + self.count)


def xdel(call: Call) -> None:
    """XDEL key id [id …] → the number of deleted entries; they stay in pending lists."""
    arguments = call.arguments
    key = arguments.bytes(1)
    stream = call.stream(key)
    if stream is None:
        call.reply.integer(0)
        return
    ids = dict.fromkeys(id_list(arguments, 2, arguments.count))
    found = [entry_id for entry_id in ids if stream.log.contains(*entry_id)]
    if found:
        call.admit(HEADROOM + len(found) * ID_BYTES)
        stream.delete(found, marks=True)
        call.modified(key, len(found))
        call.notify(STREAM, b"xdel", key)
    call.reply.integer(len(found))


def removal_bytes(stream: StoredStream, count: int) -> int:
    """Return an upper bound for the facts of acknowledging and deleting ``count`` entries, in bytes."""
    return (2 + len(stream.groups)) * (HEADROOM + count * ID_BYTES)


def xackdel(call: Call) -> None:
    """XACKDEL key group [KEEPREF|DELREF|ACKED] IDS n id [id …] → an array with a flag for each id: 1 acknowledged
    and deleted, 2 acknowledged and kept because it is referenced, -1 not pending."""
    stream = call.read_stream(call.arguments.bytes(1))
    deletion = _Deletion(call.arguments, 3)
    group = None if stream is None else stream.groups.get(call.arguments.bytes(2))
    flags = [_NONE] * deletion.count
    if stream is not None and group is not None:
        ids = deletion.ids()
        if any(group.pel.find(*entry_id) != NOWHERE for entry_id in ids):
            call.admit(removal_bytes(stream, len(ids)))
            flags = acknowledge_and_delete(call, stream, group, ids, deletion.mode)
    _answer(call, flags)


def acknowledge_and_delete(
    call: Call,
    stream: StoredStream,
    group: ConsumerGroup,
    ids: list[tuple[int, int]],
    mode: bytes,
) -> list[int]:
    """Acknowledge and delete entries as XACKDEL does. Return a flag for each id. The caller has called `Call.admit`."""
    acked = dict.fromkeys(i for i in ids if group.pel.find(*i) != NOWHERE)
    if not acked:
        return [_NONE] * len(ids)
    group.acknowledge(flat_words(acked))
    if mode == DELREF:
        forget(stream, list(acked))
    kept = {i for i in acked if mode == ACKED and stream.referenced(i)}
    _delete(call, stream, [i for i in acked if i not in kept and stream.log.contains(*i)])
    call.keyspace.dirty += len(acked)
    flags: list[int] = []
    for entry_id in ids:
        if entry_id not in acked:
            flags.append(_NONE)
            continue
        del acked[entry_id]
        flags.append(_KEPT if entry_id in kept else _DELETED)
    return flags


def xdelex(call: Call) -> None:
    """XDELEX key [KEEPREF|DELREF|ACKED] IDS n id [id …] → an array with a flag for each id: 1 deleted, 2 kept because
    it is referenced, -1 no such entry.

    For an entry that was deleted before but is still referenced, the flag with ACKED is 2; DELREF removes the
    entry from the pending lists.
    """
    stream = call.stream(call.arguments.bytes(1))
    deletion = _Deletion(call.arguments, 2)
    if stream is None:
        _answer(call, [_NONE] * deletion.count)
        return
    ids, mode = deletion.ids(), deletion.mode
    flags: list[int] = []
    deleted: dict[tuple[int, int], None] = {}
    for entry_id in ids:
        if mode == ACKED and stream.referenced(entry_id):
            flags.append(_KEPT)
        elif entry_id not in deleted and stream.log.contains(*entry_id):
            deleted[entry_id] = None
            flags.append(_DELETED)
        else:
            flags.append(_NONE)
    pending = mode == DELREF and any(_is_pending(stream, entry_id) for entry_id in ids)
    if deleted or pending:
        call.admit(removal_bytes(stream, len(ids)))
        if pending:
            forget(stream, list(dict.fromkeys(ids)))
        _delete(call, stream, list(deleted))
        call.keyspace.dirty += len(deleted)
    _answer(call, flags)


def _is_pending(stream: StoredStream, entry_id: tuple[int, int]) -> bool:
    return any(group.pel.find(*entry_id) != NOWHERE for group in stream.groups.values())


def _delete(call: Call, stream: StoredStream, ids: list[tuple[int, int]]) -> None:
    """Delete live entries. ``ids`` may be empty."""
    if ids:
        stream.delete(ids, marks=True)
        call.db.touch(stream.key)
        call.notify(STREAM, b"xdel", stream.key)


def _answer(call: Call, flags: list[int]) -> None:
    call.reply.array(len(flags))
    for flag in flags:
        call.reply.integer(flag)
