"""Group mode: a query as a member of a consumer group, beside its workers.

offsets      what a batch names: runs of neighbours and single entries
membership   the query as a member of each stream's group, through `headwater.groups`
holder       the consumer's name, held by one query at a time
keeper       renews what a batch holds until it is settled
taking       what the next batch consists of: own, claimed, new; dead letters
partitions   a batch cut into tasks
reading      the rows of a task, in an executor
streaming    what Spark calls
finishing    settles the last batch of a query that has ended
"""
