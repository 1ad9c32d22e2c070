"""Consumer groups on Headwater, Redis and Valkey: what every consumer needs, without I/O.

Workers and Spark's group mode share this package. Its operations yield commands and receive replies, so
that synchronous and asyncio code can run them.

    protocol    operations and the two drivers that run them; Headwater's commands as Lua scripts
    membership  being a member of a group, its backup, leases, consumers that are gone
    reading     reading new entries and claiming idle ones, in order, within limits, without poison
    settling    acknowledge, hand back, delay, publish results, dead letters and their replay
    reports     what a group has not settled, and why
"""
