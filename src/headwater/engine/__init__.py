"""The state of a store: streams, groups, pending entries, keys. Pure: it opens no files, reads no clock,
draws no random numbers and uses no sockets.

    facts  accounts  bodies ◀ redis_nodes, entries ◀ tier ◀ shared ◀ groups ◀ streams ◀ keyspace ◀ image ◀ replay

Its mutators record each change as a fact (facts). Opening a store applies the recorded facts again (replay).
check.py verifies all invariants.
"""
