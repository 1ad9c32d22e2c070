"""SUBSCRIBE, UNSUBSCRIBE, PUBLISH, their variants, and PUBSUB. `headwater.server.services.pubsub` delivers.

Each name is confirmed by a message, which is a push in RESP3 and is sent even after CLIENT REPLY OFF.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.globs import matches
from headwater.commands.help import write_help, wrong_arguments
from headwater.resp.replies import ReplyWriter
from headwater.server.services.pubsub import Listeners
from headwater.server.session.subscriptions import CHANNEL, PATTERN, SHARD

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def subscribe(call: Call, session: Session, services: Services) -> None:
    """SUBSCRIBE channel [channel …]: receive the messages of PUBLISH to these channels."""
    _subscribe(call, session, services, CHANNEL)


def psubscribe(call: Call, session: Session, services: Services) -> None:
    """PSUBSCRIBE pattern [pattern …]: receive the messages of PUBLISH to matching channels."""
    _subscribe(call, session, services, PATTERN)


def ssubscribe(call: Call, session: Session, services: Services) -> None:
    """SSUBSCRIBE channel [channel …]: receive the messages of SPUBLISH to these shard channels, whose names are
    separate from those of channels."""
    _subscribe(call, session, services, SHARD)


def unsubscribe(call: Call, session: Session, services: Services) -> None:
    """UNSUBSCRIBE [channel …]: end subscriptions, all of them without a name."""
    _unsubscribe(call, session, services, CHANNEL)


def punsubscribe(call: Call, session: Session, services: Services) -> None:
    """PUNSUBSCRIBE [pattern …]: end subscriptions, all of them without a pattern."""
    _unsubscribe(call, session, services, PATTERN)


def sunsubscribe(call: Call, session: Session, services: Services) -> None:
    """SUNSUBSCRIBE [channel …]: end subscriptions, all of them without a name."""
    _unsubscribe(call, session, services, SHARD)


def publish(call: Call, session: Session, services: Services) -> None:
    """PUBLISH channel message: the number of subscriptions that receive it."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, executing=session))


def spublish(call: Call, session: Session, services: Services) -> None:
    """SPUBLISH channel message: as PUBLISH, for a shard channel."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, sharded=True, executing=session))


def pubsub_channels(call: Call, session: Session, services: Services) -> None:
    """PUBSUB CHANNELS [pattern]: the channels with subscriptions, without those by pattern."""
    _list(call, services.pubsub.channels)


def pubsub_shardchannels(call: Call, session: Session, services: Services) -> None:
    """PUBSUB SHARDCHANNELS [pattern]: the shard channels with subscriptions."""
    _list(call, services.pubsub.shard_channels)


def pubsub_numsub(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMSUB [channel …]: each channel with the number of its subscriptions, without those by
    pattern."""
    _count(call, services.pubsub.channels)


def pubsub_shardnumsub(call: Call, session: Session, services: Services) -> None:
    """PUBSUB SHARDNUMSUB [channel …]: each shard channel with the number of its subscriptions."""
    _count(call, services.pubsub.shard_channels)


def pubsub_numpat(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMPAT: the number of different patterns with subscriptions."""
    call.reply.integer(len(services.pubsub.patterns.by_pattern))


def pubsub_help(call: Call, session: Session, services: Services) -> None:
    """PUBSUB HELP."""
    write_help(
        call,
        b"PUBSUB",
        {
            b"CHANNELS": "[<pattern>]",
            b"NUMSUB": "[<channel> ...]",
            b"SHARDCHANNELS": "[<pattern>]",
            b"SHARDNUMSUB": "[<shardchannel> ...]",
        },
    )


def _subscribe(call: Call, session: Session, services: Services, kind: bytes) -> None:
    for name in call.arguments.values(1):
        services.pubsub.subscribe(session, kind, name)
        _confirm(call, session, kind, b"subscribe", name)


def _unsubscribe(call: Call, session: Session, services: Services, kind: bytes) -> None:
    names = call.arguments.values(1) or list(session.subscriptions.of(kind))
    for name in names:
        services.pubsub.unsubscribe(session, kind, name)
        _confirm(call, session, kind, b"unsubscribe", name)
    if not names:
        _confirm(call, session, kind, b"unsubscribe", None)


def _confirm(call: Call, session: Session, kind: bytes, word: bytes, name: bytes | None) -> None:
    silent = session.reply_mode != "on"
    reply = ReplyWriter(session.output.pushes, session.resp) if silent else call.reply
    reply.push(3)
    reply.bulk(kind + word)
    reply.bulk_or_nil(name)
    reply.integer(session.subscriptions.count(kind))


def _list(call: Call, channels: dict[bytes, Listeners]) -> None:
    arguments = call.arguments
    if arguments.count > 3:
        raise wrong_arguments(arguments)
    if arguments.count == 3:
        pattern = arguments.bytes(2)
        call.reply.bulks([name for name in channels if matches(pattern, name)])
    else:
        call.reply.bulks(list(channels))


def _count(call: Call, channels: dict[bytes, Listeners]) -> None:
    names = call.arguments.values(2)
    call.reply.array(2 * len(names))
    for name in names:
        call.reply.bulk(name)
        call.reply.integer(len(channels.get(name, ())))
