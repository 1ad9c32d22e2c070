"""Pub/Sub."""

from __future__ import annotations

from headwater.commands.table.command import Command, help_command

_LISTENING = "pubsub noscript loading stale"
_ASKING = "pubsub loading stale"

# fmt: off
SUBSCRIBE = Command(
    "subscribe", arity=-2, flags=_LISTENING, group="pubsub", since="2.0.0",
    summary="Subscribes to channels.",
    syntax="channel [channel ...]",
    run="server:pubsub.subscribe",
)

UNSUBSCRIBE = Command(
    "unsubscribe", arity=-1, flags=_LISTENING, group="pubsub", since="2.0.0",
    summary="Unsubscribes from channels; without a name, from all.",
    syntax="[channel [channel ...]]",
    run="server:pubsub.unsubscribe",
)

PSUBSCRIBE = Command(
    "psubscribe", arity=-2, flags=_LISTENING, group="pubsub", since="2.0.0",
    summary="Subscribes to the channels that match patterns.",
    syntax="pattern:pattern [pattern:pattern ...]",
    run="server:pubsub.subscribe",
)

PUNSUBSCRIBE = Command(
    "punsubscribe", arity=-1, flags=_LISTENING, group="pubsub", since="2.0.0",
    summary="Unsubscribes from patterns; without one, from all.",
    syntax="[pattern:pattern [pattern:pattern ...]]",
    run="server:pubsub.unsubscribe",
)

PUBLISH = Command(
    "publish", arity=3, flags="pubsub loading stale fast may_replicate", group="pubsub", since="2.0.0",
    summary="Sends a message to a channel.",
    syntax="channel message",
    run="server:pubsub.publish",
)

SSUBSCRIBE = Command(
    "ssubscribe", arity=-2, flags=_LISTENING, keys="not_key 1:-1", group="pubsub", since="7.0.0",
    summary="Subscribes to shard channels.",
    syntax="shardchannel [shardchannel ...]",
    run="server:pubsub.subscribe",
)

SUNSUBSCRIBE = Command(
    "sunsubscribe", arity=-1, flags=_LISTENING, keys="not_key 1:-1", group="pubsub", since="7.0.0",
    summary="Unsubscribes from shard channels; without a name, from all.",
    syntax="[shardchannel [shardchannel ...]]",
    run="server:pubsub.unsubscribe",
)

SPUBLISH = Command(
    "spublish", arity=3, flags="pubsub loading stale fast may_replicate", keys="not_key 1",
    group="pubsub", since="7.0.0",
    summary="Sends a message to a shard channel.",
    syntax="shardchannel message",
    run="server:pubsub.spublish",
)

PUBSUB = Command(
    "pubsub", arity=-2, group="pubsub", since="2.8.0",
    summary="Shows channels and subscriptions.",
    subcommands=(
        Command(
            "pubsub|channels", arity=-2, flags=_ASKING, group="pubsub", since="2.8.0",
            summary="Lists the channels that have subscriptions.",
            syntax="[pattern:pattern]",
            run="server:pubsub.pubsub_channels",
        ),
        Command(
            "pubsub|numsub", arity=-2, flags=_ASKING, group="pubsub", since="2.8.0",
            summary="Counts the subscriptions of channels, without those by pattern.",
            syntax="[channel [channel ...]]",
            run="server:pubsub.pubsub_numsub",
        ),
        Command(
            "pubsub|numpat", arity=2, flags=_ASKING, group="pubsub", since="2.8.0",
            summary="Counts the patterns that have subscriptions.",
            run="server:pubsub.pubsub_numpat",
        ),
        Command(
            "pubsub|shardchannels", arity=-2, flags=_ASKING, group="pubsub", since="7.0.0",
            summary="Lists the shard channels that have subscriptions.",
            syntax="[pattern:pattern]",
            run="server:pubsub.pubsub_channels",
        ),
        Command(
            "pubsub|shardnumsub", arity=-2, flags=_ASKING, group="pubsub", since="7.0.0",
            summary="Counts the subscriptions of shard channels.",
            syntax="[shardchannel [shardchannel ...]]",
            run="server:pubsub.pubsub_numsub",
        ),
        help_command("pubsub", group="pubsub", since="6.2.0"),
    ),
)
# fmt: on
