"""XGROUP and XRETIRE: create and remove groups and consumers.

Source: Redis's command pages and t_stream.c (xgroupCommand); docs/guide/streams.md for XRETIRE.
"""

from __future__ import annotations

from headwater.commands.call import Call, new_number, shown
from headwater.commands.help import write_lines, wrong_arguments
from headwater.common.model import UNKNOWN
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.events import STREAM
from headwater.engine.shared.history import StreamHistory
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_NO_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use "
    "the MKSTREAM option to create an empty stream automatically."
)
_MOST_CREATE_ARGUMENTS = 8
_MOST_SETID_ARGUMENTS = 7

XGROUP_HELP = (
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a group that reads the entries after an id. Options:",
    "    * MKSTREAM",
    "      Make an empty stream if the key does not exist.",
    "    * ENTRIESREAD entries_read",
    "      The number of entries that the group has read, for its lag.",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a consumer of a group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove a consumer and its pending entries; return their number.",
    "DESTROY <key> <groupname>",
    "    Remove a group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the last delivered id of a group.",
    "HELP",
    "    Print this help.",
)


def pending_group(call: Call, *, looked_up: bool = False) -> tuple[StoredStream, ConsumerGroup]:
    """Return the stream named by argument 1 and its group named by argument 2, for commands on pending
    entries.

    ``looked_up`` means that the command has already counted a hit or a miss for the key. Raises
    `CommandError` (WRONGTYPE, NOGROUP).
    """
    key, name = call.arguments.bytes(1), call.arguments.bytes(2)
    stream = call.stream(key) if looked_up else call.read_stream(key)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise CommandError(f"NOGROUP No such key '{shown(key)}' or consumer group '{shown(name)}'")
    return stream, group


def no_group(name: bytes, key: bytes) -> CommandError:
    """Return the error for a group that does not exist."""
    return CommandError(
        f"NOGROUP No such consumer group '{shown(name)}' for key name '{shown(key)}'"
    )


class _Subject:
    """The stream and group that an XGROUP subcommand names."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.key = call.arguments.bytes(2)
        self.name = call.arguments.bytes(3)
        self.stream = call.stream(self.key)

    def changed(self, event: bytes) -> None:
        """Count a change and record its keyspace event."""
        self.call.keyspace.dirty += 1
        self.call.notify(STREAM, event, self.key)

    def existing_stream(self) -> StoredStream:
        """Return the stream. Raises `CommandError` if it does not exist."""
        if self.stream is None:
            raise CommandError(_NO_KEY)
        return self.stream

    def existing_group(self) -> ConsumerGroup:
        """Return the group. Raises `CommandError` if it or its stream does not exist."""
        group = self.existing_stream().groups.get(self.name)
        if group is None:
            raise no_group(self.name, self.key)
        return group


def _position(
    arguments: Arguments, stream: StreamHistory | None, *, strict: bool
) -> tuple[int, int]:
    """Return the id in argument 4; ``$`` is the last id of ``stream``, or 0-0 if ``stream`` is None."""
    if arguments.bytes(4) == b"$":
        return stream.last_id if stream is not None else (0, 0)
    return arguments.id(4, strict=strict)


def _options(arguments: Arguments, *, mkstream: bool) -> tuple[bool, int]:
    """Parse the options after the id. Return whether MKSTREAM is given, and the value of ENTRIESREAD or `UNKNOWN`."""
    makes, entries_read = False, UNKNOWN
    index = 5
    while index < arguments.count:
        word = arguments.token(index)
        if mkstream and word == b"MKSTREAM":
            makes = True
            index += 1
        elif word == b"ENTRIESREAD" and index + 1 < arguments.count:
            entries_read = arguments.integer(index + 1)
            if entries_read < 0 and entries_read != UNKNOWN:
                raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
            index += 2
        else:
            raise wrong_arguments(arguments)
    return makes, entries_read


def xgroup_create(call: Call) -> None:
    """XGROUP CREATE key group <id|$> [MKSTREAM] [ENTRIESREAD n] → OK, or BUSYGROUP."""
    arguments = call.arguments
    makes, entries_read = _options(arguments, mkstream=True)
    subject = _Subject(call)
    stream = subject.stream if makes else subject.existing_stream()
    if arguments.count > _MOST_CREATE_ARGUMENTS:
        raise wrong_arguments(arguments)
    position = _position(arguments, stream, strict=True)
    if stream is not None and subject.name in stream.groups:
        raise CommandError("BUSYGROUP Consumer Group name already exists")
    gid = new_number(call.keyspace.next_gid)
    call.admit(3 * HEADROOM + len(subject.key) + len(subject.name))
    if stream is None:
        stream = call.create_stream(subject.key)
        call.db.touch(subject.key)
    read = min(entries_read, stream.entries_added)
    stream.create_group(subject.name, gid, *position, read)
    subject.changed(b"xgroup-create")
    call.reply.ok()


def xgroup_setid(call: Call) -> None:
    """XGROUP SETID key group <id|$> [ENTRIESREAD n] → OK; pending entries do not change."""
    _, entries_read = _options(call.arguments, mkstream=False)
    subject = _Subject(call)
    group = subject.existing_group()
    if call.arguments.count > _MOST_SETID_ARGUMENTS:
        raise wrong_arguments(call.arguments)
    position = _position(call.arguments, group.stream, strict=False)
    call.admit(HEADROOM)
    group.set_id(*position, min(entries_read, group.stream.entries_added))
    subject.changed(b"xgroup-setid")
    call.reply.ok()


def xgroup_destroy(call: Call) -> None:
    """XGROUP DESTROY key group → 1, or 0 if the group does not exist."""
    subject = _Subject(call)
    stream = subject.existing_stream()
    found = subject.name in stream.groups
    if found:
        call.admit(HEADROOM)
        stream.destroy_group(subject.name)
        subject.changed(b"xgroup-destroy")
    call.reply.integer(int(found))


def xgroup_createconsumer(call: Call) -> None:
    """XGROUP CREATECONSUMER key group consumer → 1, or 0 if the consumer exists."""
    subject = _Subject(call)
    group = subject.existing_group()
    name = call.arguments.bytes(4)
    missing = name not in group.consumers
    if missing:
        call.admit(HEADROOM + len(name))
        group.create_consumer(name, new_number(group.next_cid), call.now_ms)
        subject.changed(b"xgroup-createconsumer")
    call.reply.integer(int(missing))


def xgroup_delconsumer(call: Call) -> None:
    """XGROUP DELCONSUMER key group consumer → the number of entries that the consumer owned. They are
    no longer pending."""
    subject = _Subject(call)
    group = subject.existing_group()
    consumer = group.consumers.get(call.arguments.bytes(4))
    pending = 0
    if consumer is not None:
        pending = consumer.pending
        call.admit(HEADROOM + pending * ID_BYTES)
        group.delete_consumer(consumer)
        subject.changed(b"xgroup-delconsumer")
    call.reply.integer(pending)


def xgroup_help(call: Call) -> None:
    """XGROUP HELP → the subcommands, for people."""
    write_lines(call, XGROUP_HELP)


def xretire(call: Call) -> None:
    """XRETIRE key group consumer → 1 if removed, 0 if it still owns entries, -1 if it does not exist.

    Unlike XGROUP DELCONSUMER, this command never discards pending entries.
    """
    _, group = pending_group(call)
    consumer = group.consumers.get(call.arguments.bytes(3))
    if consumer is None:
        call.reply.integer(-1)
        return
    if consumer.pending:
        call.reply.integer(0)
        return
    call.admit(HEADROOM)
    group.delete_consumer(consumer)
    call.keyspace.dirty += 1
    call.notify(STREAM, b"xgroup-delconsumer", group.stream.key)
    call.reply.integer(1)
