"""What everyone who consumes for a group needs, on any server: one sans-io core, called from
sync and asyncio code alike.

    capabilities   what the server has: Headwater's verbs, XREADGROUP CLAIM, or neither
    member         who acts for which group; how a group comes to be, and comes back
    claiming       new and claimed entries, with honest counts
    settling       acknowledge, hand back, retry, publish: owner-checked, in one step; leases
    adding         entries to streams: many, one at most once, one that replicas have
    notes, noting  what workers note of their group, so that it survives being destroyed
    troubles       what to do about an error of the store: one table for every step
    dead_letters   records of what could not be handled
    replay         dead letters back to their group
    consumers      who consumes, and removing those long gone
    pending        what is not settled, for people who ask why
    scripts        the same in Lua, for Redis and Valkey
    operation      the talk with a server, and the two drivers that carry it out
"""
