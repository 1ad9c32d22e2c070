"""XINFO: information about streams, groups and consumers.

Source: Redis's command pages and t_stream.c (xinfoCommand, xinfoReplyWithStreamInfo).
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, Call
from headwater.commands.help import write_lines, wrong_arguments
from headwater.commands.times import WallOffset
from headwater.commands.xgroup import no_group
from headwater.commands.xpending import (
    positions_by_owner,
    write_consumer_rows,
    write_group_rows,
)
from headwater.common.model import UNKNOWN
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.engine.entries.entry_block import Span
from headwater.engine.groups.consumer import NEVER
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.warming import warm
from headwater.errors import CommandError
from headwater.resp.replies import ReplyWriter

XINFO_HELP = (
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show the consumers of a group.",
    "GROUPS <key>",
    "    Show the groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]]",
    "    Show a stream; FULL shows its entries, groups and pending entries too.",
    "HELP",
    "    Print this help.",
)
_DEFAULT_FULL_COUNT = 10


def xinfo_stream(call: Call) -> None:
    """XINFO STREAM key [FULL [COUNT n]] → a map."""
    arguments = call.arguments
    stream = _existing(call)
    full, count = False, _DEFAULT_FULL_COUNT
    if arguments.count > 3:
        full = True
        well_formed = arguments.token(3) == b"FULL" and (
            arguments.count == 4 or (arguments.count == 6 and arguments.token(4) == b"COUNT")
        )
        if not well_formed:
            raise wrong_arguments(arguments)
        if arguments.count == 6:
            count = arguments.count_at(5)
            count = _DEFAULT_FULL_COUNT if count < 0 else count
    if full:
        log = stream.log
        spans, total = log.spans((0, 0), stream.last_id, count or -1)
        warm(log.sealing, ((log, spans),))
        call.reply.map(15)
        call.reply.pairs(_counters(stream))
        _entries_and_groups(call, stream, spans, total, count or -1)
    else:
        ends = _ends(call, stream)
        call.reply.map(16)
        call.reply.pairs({**_counters(stream), "groups": len(stream.groups)})
        for name, wire in zip((b"first-entry", b"last-entry"), ends, strict=True):
            call.reply.bulk(name)
            if wire is None:
                call.reply.nil()
            else:
                call.reply.raw(wire)


def _existing(call: Call) -> StoredStream:
    stream = call.read_stream(call.arguments.bytes(2))
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    return stream


def _counters(stream: StoredStream) -> dict[str, object]:
    known = stream.idempotency
    return {
        "length": stream.length,
        "radix-tree-keys": len(stream.nodes),
        "radix-tree-nodes": stream.nodes.radix_tree_nodes(),
        "last-generated-id": b"%d-%d" % stream.last_id,
        "max-deleted-entry-id": b"%d-%d" % stream.max_deleted_id,
        "entries-added": stream.entries_added,
        "recorded-first-entry-id": b"%d-%d" % stream.log.first(),
        "idmp-duration": known.duration_s,
        "idmp-maxsize": known.maxsize,
        "pids-tracked": len(known.producers),
        "iids-tracked": known.tracked,
        "iids-added": known.added,
        "iids-duplicates": known.duplicates,
    }


def _ends(call: Call, stream: StoredStream) -> list[bytes | None]:
    """Return the first and the last entry, encoded for the reply; None for an empty stream."""
    log = stream.log
    missed: list[SealedBlock] = []
    ends = [log.gather(*entry_id, missed) for entry_id in (log.first(), log.last())]
    if missed:
        call.keyspace.sealing.bodies.hold({}, missed)
    return ends


def _entries_and_groups(
    call: Call, stream: StoredStream, spans: list[Span], total: int, count: int
) -> None:
    reply = call.reply
    reply.bulk(b"entries")
    reply.array(total)
    for span in spans:
        reply.part(span.data(), span.start(), span.stop())
    reply.bulk(b"groups")
    groups = stream.sorted_groups()
    reply.array(len(groups))
    for group in groups:
        _full_group(reply, group, count, call.wall)


def _group_position(group: ConsumerGroup) -> dict[str, object]:
    return {
        "last-delivered-id": b"%d-%d" % group.last_id,
        "entries-read": None if group.entries_read == UNKNOWN else group.entries_read,
        "lag": group.lag(),
    }


def _full_group(reply: ReplyWriter, group: ConsumerGroup, count: int, wall: WallOffset) -> None:
    reply.map(8)
    reply.pairs({"name": group.name, **_group_position(group)})
    reply.pairs({"pel-count": len(group.pel), "nacked-count": len(group.released)})
    reply.bulk(b"pending")
    write_group_rows(reply, group, count, wall)
    reply.bulk(b"consumers")
    consumers = group.sorted_consumers()
    reply.array(len(consumers))
    positions = positions_by_owner(group, count)
    for consumer in consumers:
        reply.map(5)
        active = consumer.active_time
        reply.pairs(
            {
                "name": consumer.name,
                "seen-time": wall.wall_ms(consumer.seen_time),
                "active-time": NEVER if active == NEVER else wall.wall_ms(active),
                "pel-count": consumer.pending,
            }
        )
        reply.bulk(b"pending")
        write_consumer_rows(reply, group, positions.get(consumer.cid), wall)


def xinfo_groups(call: Call) -> None:
    """XINFO GROUPS key → an array of maps, sorted by name."""
    call.reply.value(
        [
            {
                "name": group.name,
                "consumers": len(group.consumers),
                "pending": len(group.pel),
                **_group_position(group),
            }
            for group in _existing(call).sorted_groups()
        ]
    )


def xinfo_consumers(call: Call) -> None:
    """XINFO CONSUMERS key group → an array of maps, sorted by name; times in ms."""
    stream = _existing(call)
    name = call.arguments.bytes(3)
    group = stream.groups.get(name)
    if group is None:
        raise no_group(name, call.arguments.bytes(2))
    call.reply.value(
        [
            {
                "name": consumer.name,
                "pending": consumer.pending,
                "idle": max(0, call.now_ms - consumer.seen_time),
                "inactive": NEVER
                if consumer.active_time == NEVER
                else max(0, call.now_ms - consumer.active_time),
            }
            for consumer in group.sorted_consumers()
        ]
    )


def xinfo_help(call: Call) -> None:
    """XINFO HELP → the subcommands, for people."""
    write_lines(call, XINFO_HELP)
