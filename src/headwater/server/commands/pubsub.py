"""SUBSCRIBE, UNSUBSCRIBE, PUBLISH, their variants, and PUBSUB. `headwater.server.services.pubsub` delivers.

Each name is confirmed by a message, which is a push in RESP3 and is sent even after CLIENT REPLY OFF.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.globs import matches
from headwater.commands.help import wrong_arguments
from headwater.resp.replies import ReplyWriter
from headwater.server.services.pubsub import Listeners
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def subscribe(call: Call, session: Session, services: Services) -> None:
    """SUBSCRIBE channel …, PSUBSCRIBE pattern …: receive the messages of PUBLISH to these channels, or to those that
    match. SSUBSCRIBE channel …: receive those of SPUBLISH to shard channels, whose names are separate."""
    kind = call.arguments.token(0).removesuffix(b"SUBSCRIBE").lower()
    for name in call.arguments.values(1):
        services.pubsub.subscribe(session, kind, name)
        _confirm(call, session, kind, name)


def unsubscribe(call: Call, session: Session, services: Services) -> None:
    """UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE [name …]: end these subscriptions; without a name, all of the kind."""
    kind = call.arguments.token(0).removesuffix(b"UNSUBSCRIBE").lower()
    names = call.arguments.values(1) or list(session.subscriptions.of(kind))
    for name in names:
        services.pubsub.unsubscribe(session, kind, name)
        _confirm(call, session, kind, name)
    if not names:
        _confirm(call, session, kind, None)


def publish(call: Call, session: Session, services: Services) -> None:
    """PUBLISH channel message: the number of subscriptions that receive it."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, executing=session))


def spublish(call: Call, session: Session, services: Services) -> None:
    """SPUBLISH channel message: as PUBLISH, for a shard channel."""
    channel, message = call.arguments.values(1)
    call.reply.integer(services.pubsub.publish(channel, message, sharded=True, executing=session))


def pubsub_channels(call: Call, session: Session, services: Services) -> None:
    """PUBSUB CHANNELS [pattern], PUBSUB SHARDCHANNELS [pattern]: the channels with subscriptions, not counting
    those by pattern."""
    arguments, channels = call.arguments, _channels(call, services)
    if arguments.count > 3:
        raise wrong_arguments(arguments)
    if arguments.count == 3:
        pattern = arguments.bytes(2)
        call.reply.bulks([name for name in channels if matches(pattern, name)])
    else:
        call.reply.bulks(list(channels))


def pubsub_numsub(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMSUB [channel …], PUBSUB SHARDNUMSUB [channel …]: each channel with the number of its subscriptions,
    not counting those by pattern."""
    channels, counts = _channels(call, services), list[object]()
    for name in call.arguments.values(2):
        counts += (name, len(channels.get(name, ())))
    call.reply.value(counts)


def pubsub_numpat(call: Call, session: Session, services: Services) -> None:
    """PUBSUB NUMPAT: the number of different patterns with subscriptions."""
    call.reply.integer(len(services.pubsub.patterns.by_pattern))


def _channels(call: Call, services: Services) -> dict[bytes, Listeners]:
    sharded = call.arguments.token(1).startswith(b"SHARD")
    return services.pubsub.shard_channels if sharded else services.pubsub.channels


def _confirm(call: Call, session: Session, kind: bytes, name: bytes | None) -> None:
    silent = session.reply_mode != "on"
    reply = ReplyWriter(session.output.pushes, session.resp) if silent else call.reply
    reply.push(3)
    reply.bulk(call.arguments.token(0).lower())
    reply.bulk_or_nil(name)
    reply.integer(session.subscriptions.count(kind))
