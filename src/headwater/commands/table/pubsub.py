"""Messages to whoever listens."""

from __future__ import annotations

from headwater.commands.table.rows import CommandRow, help_row, row

_LISTENING = "pubsub noscript loading stale"
_ASKING = "pubsub loading stale"

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("subscribe", -2, _LISTENING, "", "pubsub", "2.0.0",
        "Listens to what is published on channels."),
    row("unsubscribe", -1, _LISTENING, "", "pubsub", "2.0.0",
        "Stops listening to channels, to all of them without a name."),
    row("psubscribe", -2, _LISTENING, "", "pubsub", "2.0.0",
        "Listens to what is published on channels that fit patterns."),
    row("punsubscribe", -1, _LISTENING, "", "pubsub", "2.0.0",
        "Stops listening to patterns, to all of them without one."),
    row("publish", 3, "pubsub loading stale fast", "", "pubsub", "2.0.0",
        "Says something to whoever listens to a channel."),
    row("ssubscribe", -2, _LISTENING, "not_key 1:-1", "pubsub", "7.0.0",
        "Listens to what is published on shard channels."),
    row("sunsubscribe", -1, _LISTENING, "not_key 1:-1", "pubsub", "7.0.0",
        "Stops listening to shard channels, to all of them without a name."),
    row("spublish", 3, "pubsub loading stale fast", "not_key 1", "pubsub", "7.0.0",
        "Says something to whoever listens to a shard channel."),
    row("pubsub", -2, "", "", "pubsub", "2.8.0", "Shows who listens to what.",
        row("pubsub|channels", -2, _ASKING, "", "pubsub", "2.8.0",
            "Lists the channels that somebody listens to."),
        row("pubsub|numsub", -2, _ASKING, "", "pubsub", "2.8.0",
            "Counts who listens to channels, those with patterns aside."),
        row("pubsub|numpat", 2, _ASKING, "", "pubsub", "2.8.0",
            "Counts the patterns that somebody listens to."),
        row("pubsub|shardchannels", -2, _ASKING, "", "pubsub", "7.0.0",
            "Lists the shard channels that somebody listens to."),
        row("pubsub|shardnumsub", -2, _ASKING, "", "pubsub", "7.0.0",
            "Counts who listens to shard channels."),
        help_row("pubsub", "pubsub", "6.2.0")),
)
# fmt: on
