"""SUBSCRIBE and its kin, PUBLISH, PUBSUB. Who hears what: `headwater.server.services.pubsub`.

A confirmation is a message, one for each name: RESP3 marks it as pushed, and CLIENT REPLY OFF does not
keep it back.
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
    """SUBSCRIBE channel [channel …]: hear what is published there."""
    _subscribe(call, session, services, CHANNEL)


def psubscribe(call: Call, session: Session, services: Services) -> None:
    """PSUBSCRIBE pattern [pattern …]: hear what is published on channels that fit."""
    _subscribe(call, session, services, PATTERN)


def ssubscribe(call: Call, session: Session, services: Services) -> None:
    """SSUBSCRIBE channel [channel …]: hear what SPUBLISH says; without a cluster, names of their
    own."""
    _subscribe(call, session, services, SHARD)


def unsubscribe(call: Call, session: Session, services: Services) -> None:
    """UNSUBSCRIBE [channel …]: all of them without a name."""
    _unsubscribe(call, session, services, CHANNEL)


def punsubscribe(call: Call, session: Session, services: Services) -> None:
    """PUNSUBSCRIBE [pattern …]: all of them without one."""
    _unsubscribe(call, session, services, PATTERN)


def sunsubscribe(call: Call, session: Session, services: Services) -> None:
    """SUNSUBSCRIBE [channel …]: all of them without a name."""
    _unsubscribe(call, session, services, SHARD)


def publish(call: Call, session: Session, services: Services) -> None:
    """PUBLISH channel message: how many subscriptions heard it."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, executing=session))


def spublish(call: Call, session: Session, services: Services) -> None:
    """SPUBLISH channel message: as PUBLISH, to those of SSUBSCRIBE."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, sharded=True, executing=session))


def pubsub_channels(call: Call, session: Session, services: Services) -> None:
    """PUBSUB CHANNELS [pattern]: the channels that somebody listens to by name."""
    _list(call, services.pubsub.channels)


def pubsub_shardchannels(call: Call, session: Session, services: Services) -> None:
    """PUBSUB SHARDCHANNELS [pattern]."""
    _list(call, services.pubsub.shard_channels)


def pubsub_numsub(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMSUB [channel …]: each with the number of those who listen to it by name."""
    _count(call, services.pubsub.channels)


def pubsub_shardnumsub(call: Call, session: Session, services: Services) -> None:
    """PUBSUB SHARDNUMSUB [channel …]."""
    _count(call, services.pubsub.shard_channels)


def pubsub_numpat(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMPAT: how many different patterns there are."""
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
