"""Group mode: a query reads as a member of a consumer group, together with workers.

offsets        the offset, which names a batch's entries: runs of neighbours and single entries
membership     the query as a member of each stream's group, through `headwater.groups`
name_lease     leases the consumer's name, which only one query at a time may use
lease_renewer  renews the leases of a batch's entries until the batch is settled
fetch          collects the next batch: own, claimed and new entries; buries dead letters
partitions     splits a batch into tasks
reading        reads the rows of a task, in an executor
streaming      the reader that Spark calls
settling       settles the last batch of a query that has ended
"""
