"""Redis Cluster, which Headwater does not support.

Every CLUSTER command replies with the error of a Redis server without cluster mode. Clients use it to
decide how to route commands.
"""

from __future__ import annotations

from functools import partial

from headwater.commands.table.command import ANY_STATE, VARIES, Command, help_command

_CHANGES = "admin stale no_async_loading"

_REFUSED = "server:cluster.no_cluster"

_refused = partial(Command, group="cluster", run=_REFUSED)

# fmt: off
CLUSTER = Command(
    "cluster", arity=-2, group="cluster", since="3.0.0",
    summary="Refused: there is no cluster mode.",
    subcommands=(
        _refused(
            "cluster|info", arity=2, flags="stale", since="3.0.0", tips=VARIES,
            summary="Shows the state of the cluster.",
        ),
        _refused(
            "cluster|slots", arity=2, flags=ANY_STATE, since="3.0.0", tips=VARIES,
            summary="Shows which node has which slots.",
        ),
        _refused(
            "cluster|shards", arity=2, flags=ANY_STATE, since="7.0.0", tips=VARIES,
            summary="Shows shards with their slots and nodes.",
        ),
        _refused(
            "cluster|nodes", arity=2, flags="stale", since="3.0.0", tips=VARIES,
            summary="Shows the nodes as this one knows them.",
        ),
        _refused(
            "cluster|links", arity=2, flags="stale", since="7.0.0", tips=VARIES,
            summary="Shows the connections between nodes.",
        ),
        _refused(
            "cluster|myid", arity=2, flags="stale", since="3.0.0",
            summary="Returns the id of this node.",
        ),
        _refused(
            "cluster|myshardid", arity=2, flags="stale", since="7.2.0", tips=VARIES,
            summary="Returns the id of this node's shard.",
        ),
        _refused(
            "cluster|keyslot", arity=3, flags="stale", since="3.0.0",
            summary="Returns the slot of a key.",
            syntax="key:string",
        ),
        _refused(
            "cluster|countkeysinslot", arity=3, flags="stale", since="3.0.0",
            summary="Counts the keys of a slot.",
            syntax="slot:integer",
        ),
        _refused(
            "cluster|getkeysinslot", arity=4, flags="stale", since="3.0.0", tips=VARIES,
            summary="Lists keys of a slot.",
            syntax="slot:integer count:integer",
        ),
        _refused(
            "cluster|slot-stats", arity=-4, flags=ANY_STATE, since="8.2.0",
            tips=f"{VARIES} request_policy:all_shards",
            summary="Shows how slots are used.",
            syntax="<SLOTSRANGE start-slot:integer end-slot:integer | ORDERBY metric [LIMIT "
            "limit:integer] [ASC | DESC]>",
        ),
        _refused(
            "cluster|replicas", arity=3, flags="admin stale", since="5.0.0", tips=VARIES,
            summary="Shows the replicas of a primary.",
            syntax="node-id",
        ),
        _refused(
            "cluster|slaves", arity=3, flags="admin stale", since="3.0.0", tips=VARIES,
            summary="The old name of CLUSTER REPLICAS.",
            syntax="node-id",
        ),
        _refused(
            "cluster|count-failure-reports", arity=3, flags="admin stale", since="3.0.0", tips=VARIES,
            summary="Counts reports that a node has failed.",
            syntax="node-id",
        ),
        _refused(
            "cluster|replicate", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Makes this node a replica of another.",
            syntax="node-id",
        ),
        _refused(
            "cluster|meet", arity=-4, flags=_CHANGES, since="3.0.0",
            summary="Connects this node to another.",
            syntax="ip port:integer [cluster-bus-port:integer]",
        ),
        _refused(
            "cluster|forget", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Removes a node from the cluster.",
            syntax="node-id",
        ),
        _refused(
            "cluster|failover", arity=-2, flags=_CHANGES, since="3.0.0",
            summary="Promotes a replica to primary.",
            syntax="[FORCE | TAKEOVER]",
        ),
        _refused(
            "cluster|reset", arity=-2, flags="admin noscript stale", since="3.0.0",
            summary="Removes this node from its cluster.",
            syntax="[HARD | SOFT]",
        ),
        _refused(
            "cluster|addslots", arity=-3, flags=_CHANGES, since="3.0.0",
            summary="Assigns slots to this node.",
            syntax="slot:integer [slot:integer ...]",
        ),
        _refused(
            "cluster|addslotsrange", arity=-4, flags=_CHANGES, since="7.0.0",
            summary="Assigns ranges of slots to this node.",
            syntax="start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ),
        _refused(
            "cluster|delslots", arity=-3, flags=_CHANGES, since="3.0.0",
            summary="Removes slots from this node.",
            syntax="slot:integer [slot:integer ...]",
        ),
        _refused(
            "cluster|delslotsrange", arity=-4, flags=_CHANGES, since="7.0.0",
            summary="Removes ranges of slots from this node.",
            syntax="start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ),
        _refused(
            "cluster|flushslots", arity=2, flags=_CHANGES, since="3.0.0",
            summary="Removes all slots from this node.",
        ),
        _refused(
            "cluster|setslot", arity=-4, flags=_CHANGES, since="3.0.0",
            summary="Assigns a slot to a node, or moves it.",
            syntax="slot:integer <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        ),
        _refused(
            "cluster|bumpepoch", arity=2, flags=_CHANGES, since="3.0.0", tips=VARIES,
            summary="Raises the epoch of the configuration.",
        ),
        _refused(
            "cluster|set-config-epoch", arity=3, flags=_CHANGES, since="3.0.0",
            summary="Sets the epoch of a new node.",
            syntax="config-epoch:integer",
        ),
        _refused(
            "cluster|saveconfig", arity=2, flags=_CHANGES, since="3.0.0",
            summary="Writes the cluster's configuration to disk.",
        ),
        help_command("cluster", group="cluster", since="5.0.0", run=_REFUSED),
    ),
)

READONLY = _refused(
    "readonly", arity=1, flags="loading stale fast", since="3.0.0",
    summary="Allows reads on a replica of a cluster.",
    acl="connection",
)

READWRITE = _refused(
    "readwrite", arity=1, flags="loading stale fast", since="3.0.0",
    summary="Ends the read-only mode that READONLY began on a connection.",
    acl="connection",
)

ASKING = _refused(
    "asking", arity=1, flags="fast", since="3.0.0",
    summary="Allows the next command to use a slot that is being moved to this node.",
    acl="connection",
)
# fmt: on
