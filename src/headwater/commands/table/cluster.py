"""Redis Cluster, which Headwater does not support.

Every CLUSTER command answers so, as a Redis server does that runs without cluster mode. Clients ask
before they choose how to route commands.
"""

from __future__ import annotations

from headwater.commands.table.command import ANY_STATE, VARIES, Command, help_command

_CHANGES = "admin stale no_async_loading"

_REFUSED = "server:cluster.no_cluster"


def _subcommand(
    name: str, *, arity: int, flags: str, since: str, summary: str, syntax: str = "", tips: str = ""
) -> Command:
    return Command(
        f"cluster|{name}",
        arity=arity,
        flags=flags,
        group="cluster",
        since=since,
        summary=summary,
        syntax=syntax,
        tips=tips,
        run=_REFUSED,
    )


# fmt: off
CLUSTER = Command(
    "cluster", arity=-2, group="cluster", since="3.0.0",
    summary="Refused: there is no cluster mode.",
    acl="",
    subcommands=(
        _subcommand(
            "info", arity=2, flags="stale", since="3.0.0", tips=VARIES,
            summary="Shows the state of the cluster.",
        ),
        _subcommand(
            "slots", arity=2, flags=ANY_STATE, since="3.0.0", tips=VARIES,
            summary="Shows which node has which slots.",
        ),
        _subcommand(
            "shards", arity=2, flags=ANY_STATE, since="7.0.0", tips=VARIES,
            summary="Shows shards with their slots and nodes.",
        ),
        _subcommand(
            "nodes", arity=2, flags="stale", since="3.0.0", tips=VARIES,
            summary="Shows the nodes as this one knows them.",
        ),
        _subcommand(
            "links", arity=2, flags="stale", since="7.0.0", tips=VARIES,
            summary="Shows the connections between nodes.",
        ),
        _subcommand(
            "myid", arity=2, flags="stale", since="3.0.0",
            summary="Returns the id of this node.",
        ),
        _subcommand(
            "myshardid", arity=2, flags="stale", since="7.2.0", tips=VARIES,
            summary="Returns the id of this node's shard.",
        ),
        _subcommand(
            "keyslot", arity=3, flags="stale", since="3.0.0",
            summary="Returns the slot of a key.",
            syntax="key:string",
        ),
        _subcommand(
            "countkeysinslot", arity=3, flags="stale", since="3.0.0",
            summary="Counts the keys of a slot.",
            syntax="slot:integer",
        ),
        _subcommand(
            "getkeysinslot", arity=4, flags="stale", since="3.0.0", tips=VARIES,
            summary="Lists keys of a slot.",
            syntax="slot:integer count:integer",
        ),
        _subcommand(
            "slot-stats", arity=-4, flags=ANY_STATE, since="8.2.0",
            tips=f"{VARIES} request_policy:all_shards",
            summary="Shows how slots are used.",
            syntax="<SLOTSRANGE start-slot:integer end-slot:integer | ORDERBY metric [LIMIT "
            "limit:integer] [ASC | DESC]>",
        ),
        _subcommand(
            "replicas", arity=3, flags="admin stale", since="5.0.0", tips=VARIES,
            summary="Shows the replicas of a primary.",
            syntax="node-id",
        ),
        _subcommand(
            "slaves", arity=3, flags="admin stale", since="3.0.0", tips=VARIES,
            summary="The old name of CLUSTER REPLICAS.",
            syntax="node-id",
        ),
        _subcommand(
            "count-failure-reports", arity=3, flags="admin stale", since="3.0.0", tips=VARIES,
            summary="Counts reports that a node has failed.",
            syntax="node-id",
        ),
        _subcommand(
            "replicate", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Makes this node a replica of another.",
            syntax="node-id",
        ),
        _subcommand(
            "meet", arity=-4, flags=_CHANGES, since="3.0.0",
            summary="Connects this node to another.",
            syntax="ip port:integer [cluster-bus-port:integer]",
        ),
        _subcommand(
            "forget", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Removes a node from the cluster.",
            syntax="node-id",
        ),
        _subcommand(
            "failover", arity=-2, flags=_CHANGES, since="3.0.0",
            summary="Promotes a replica to primary.",
            syntax="[FORCE | TAKEOVER]",
        ),
        _subcommand(
            "reset", arity=-2, flags="admin noscript stale", since="3.0.0",
            summary="Removes this node from its cluster.",
            syntax="[HARD | SOFT]",
        ),
        _subcommand(
            "addslots", arity=-3, flags=_CHANGES, since="3.0.0",
            summary="Assigns slots to this node.",
            syntax="slot:integer [slot:integer ...]",
        ),
        _subcommand(
            "addslotsrange", arity=-4, flags=_CHANGES, since="7.0.0",
            summary="Assigns ranges of slots to this node.",
            syntax="start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ),
        _subcommand(
            "delslots", arity=-3, flags=_CHANGES, since="3.0.0",
            summary="Removes slots from this node.",
            syntax="slot:integer [slot:integer ...]",
        ),
        _subcommand(
            "delslotsrange", arity=-4, flags=_CHANGES, since="7.0.0",
            summary="Removes ranges of slots from this node.",
            syntax="start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ),
        _subcommand(
            "flushslots", arity=2, flags=_CHANGES, since="3.0.0",
            summary="Removes all slots from this node.",
        ),
        _subcommand(
            "setslot", arity=-4, flags=_CHANGES, since="3.0.0",
            summary="Assigns a slot to a node, or moves it.",
            syntax="slot:integer <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        ),
        _subcommand(
            "bumpepoch", arity=2, flags=_CHANGES, since="3.0.0", tips=VARIES,
            summary="Raises the epoch of the configuration.",
        ),
        _subcommand(
            "set-config-epoch", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Sets the epoch of a new node.",
            syntax="config-epoch:integer",
        ),
        _subcommand(
            "saveconfig", arity=2, flags=_CHANGES, since="3.0.0",
            summary="Writes the cluster's configuration to disk.",
        ),
        help_command("cluster", group="cluster", since="5.0.0", run=_REFUSED),
    ),
)

READONLY = Command(
    "readonly", arity=1, flags="loading stale fast", group="cluster", since="3.0.0",
    summary="Allows reads on a replica of a cluster.",
    acl="connection", run=_REFUSED,
)

READWRITE = Command(
    "readwrite", arity=1, flags="loading stale fast", group="cluster", since="3.0.0",
    summary="Ends READONLY.",
    acl="connection", run=_REFUSED,
)

ASKING = Command(
    "asking", arity=1, flags="fast", group="cluster", since="3.0.0",
    summary="Allows the next command in a slot that is being moved here.",
    acl="connection", run=_REFUSED,
)
# fmt: on
