"""Redis Cluster, which this store is not: every command of it answers that, as Redis does when it
runs alone. Clients ask before they choose how to talk.
"""

from __future__ import annotations

from headwater.commands.table.rows import ANY_STATE, VARIES, CommandRow, help_row, row

_CHANGES = "admin stale no_async_loading"

_SUBCOMMANDS = (
    ("info", 2, "stale", "3.0.0", VARIES, "Shows the state of the cluster."),
    ("slots", 2, ANY_STATE, "3.0.0", VARIES, "Shows which node has which slots."),
    ("shards", 2, ANY_STATE, "7.0.0", VARIES, "Shows shards with their slots and nodes."),
    ("nodes", 2, "stale", "3.0.0", VARIES, "Shows the nodes as this one knows them."),
    ("links", 2, "stale", "7.0.0", VARIES, "Shows the connections between nodes."),
    ("myid", 2, "stale", "3.0.0", "", "Tells the id of this node."),
    ("myshardid", 2, "stale", "7.2.0", VARIES, "Tells the id of this node's shard."),
    ("keyslot", 3, "stale", "3.0.0", "", "Tells the slot of a key."),
    ("countkeysinslot", 3, "stale", "3.0.0", "", "Counts the keys of a slot."),
    ("getkeysinslot", 4, "stale", "3.0.0", VARIES, "Lists keys of a slot."),
    ("slot-stats", -4, ANY_STATE, "8.2.0", f"{VARIES} request_policy:all_shards",
     "Shows how slots are used."),
    ("replicas", 3, "admin stale", "5.0.0", VARIES, "Shows the replicas of a primary."),
    ("slaves", 3, "admin stale", "3.0.0", VARIES, "The old name of CLUSTER REPLICAS."),
    ("count-failure-reports", 3, "admin stale", "3.0.0", VARIES,
     "Counts reports that a node has failed."),
    ("replicate", 3, _CHANGES, "3.0.0", "", "Makes this node a replica of another."),
    ("meet", -4, _CHANGES, "3.0.0", "", "Introduces this node to another."),
    ("forget", 3, _CHANGES, "3.0.0", "", "Removes a node from the cluster."),
    ("failover", -2, _CHANGES, "3.0.0", "", "Makes a replica take its primary's place."),
    ("reset", -2, "admin noscript stale", "3.0.0", "", "Takes this node out of its cluster."),
    ("addslots", -3, _CHANGES, "3.0.0", "", "Gives slots to this node."),
    ("addslotsrange", -4, _CHANGES, "7.0.0", "", "Gives ranges of slots to this node."),
    ("delslots", -3, _CHANGES, "3.0.0", "", "Takes slots away from this node."),
    ("delslotsrange", -4, _CHANGES, "7.0.0", "", "Takes ranges of slots away from this node."),
    ("flushslots", 2, _CHANGES, "3.0.0", "", "Takes all slots away from this node."),
    ("setslot", -4, _CHANGES, "3.0.0", "", "Says which node has a slot, or moves it."),
    ("bumpepoch", 2, _CHANGES, "3.0.0", VARIES, "Raises the epoch of the configuration."),
    ("set-config-epoch", 3, _CHANGES, "3.0.0", "", "Sets the epoch of a new node."),
    ("saveconfig", 2, _CHANGES, "3.0.0", "", "Writes the cluster's configuration to disk."),
)  # fmt: skip

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("cluster", -2, "", "", "cluster", "3.0.0", "Answers that there is no cluster.",
        *(row(f"cluster|{name}", arity, flags, "", "cluster", since, summary, tips=tips)
          for name, arity, flags, since, tips, summary in _SUBCOMMANDS),
        help_row("cluster", "cluster", "5.0.0"), acl=""),
    row("readonly", 1, "loading stale fast", "", "cluster", "3.0.0",
        "Lets a cluster's replica answer reads.", acl="connection"),
    row("readwrite", 1, "loading stale fast", "", "cluster", "3.0.0",
        "Takes READONLY back.", acl="connection"),
    row("asking", 1, "fast", "", "cluster", "3.0.0",
        "Lets the next command reach a slot that is being moved here.", acl="connection"),
)
# fmt: on
