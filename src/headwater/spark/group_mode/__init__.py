"""Group mode: a query as a member of a consumer group, next to its workers.

offsets        what a batch names: runs of neighbours and single entries
membership     the query as a member of each stream's group, through `headwater.groups`
name_lease     a lease on the consumer's name, which one query at a time has
lease_renewer  renews the leases of a batch's entries until the batch is settled
fetch          what the next batch consists of: own, claimed, new; dead letters
partitions     a batch cut into tasks
reading        the rows of a task, in an executor
streaming      what Spark calls
settling       settles the last batch of a query that has ended
"""
