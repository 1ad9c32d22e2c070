"""Every command, as data: COMMAND, arity checks, ACL and the reference page are made from it.

A row names arity, flags, key specifications, group, first version and a summary, as Redis's own
rows do; rows of commands that Redis has are compared with a real server in
tests/conformance/test_protocol_table.py. ``since`` of our own verbs is Headwater's version.
"""

from __future__ import annotations

from headwater.commands.table import (
    acl,
    cluster,
    connection,
    generic,
    persistence,
    pubsub,
    scripting,
    server,
    streams,
    transactions,
    values,
)
from headwater.commands.table.rows import CommandRow

COMMANDS: dict[bytes, CommandRow] = {
    row.name.upper().encode(): row
    for room in (
        streams,
        generic,
        values,
        transactions,
        connection,
        pubsub,
        acl,
        server,
        persistence,
        scripting,
        cluster,
    )
    for row in room.ROWS
}
"""Every command that this store knows, by upper-case name."""

__all__ = ["COMMANDS", "CommandRow"]
