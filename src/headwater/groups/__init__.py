"""Consumer groups on Headwater, Redis and Valkey: what every consumer needs, without I/O.

Workers and Spark's group mode share this package. Its operations yield commands and receive replies, so
that synchronous and asyncio code can run them.

    operation        the protocol of operations, and the two drivers that run them
    capabilities     which of Headwater's commands the server has
    member           a member of a group; creating a group and creating it again
    session          what a member remembers, to create a group again that is gone
    claiming         reading new entries and claiming idle ones
    settling         acknowledge, hand back, delay, publish results: owner-checked, in one step; renewing
    lease            a thread that renews leases
    adding           adding entries: many, one at most once, one that replicas confirm
    scheduling       messages that are published later
    group_backup     the backup of a group, from which it is created again; written by backup_writer
    store_errors     what to do about an error of the store: one table for every step
    poison           which deaths of a process count against a message; read by suspect_reader
    early_claims     counting entries that were claimed from a worker that still ran them
    held             which entries of an ordered group wait for their key
    ordered          reading for a group whose messages are handled in order
    dead_letters     records of entries that could not be handled
    replay           handing dead letters back to their group
    consumers        the consumers of a group, and removing those that are gone
    pending          what a group has not settled, for reports
    trimmed          counting entries that were trimmed before the group read them
    deleting         checking that acknowledged entries can be deleted
    scripts          Headwater's commands as Lua scripts, for Redis and Valkey
"""
