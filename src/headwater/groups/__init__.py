"""Consumer groups on Headwater, Redis and Valkey: the operations that every consumer needs, without I/O.

Workers and Spark's group mode share this package. Its operations yield commands and receive replies, so
that synchronous and asyncio code can run them.

    protocol    operations and the two drivers that run them; Headwater's commands as Lua scripts
    membership  the members of a group, its backup, leases, removing unused consumers
    reading     reading new entries and claiming idle ones, in order, within limits, without poison
    settling    acknowledge, hand back, delay, publish results, dead letters and their replay
    reports     the entries that a group has not settled, with the reasons
"""
