"""Reports and actions for operators of a store, on Headwater, Redis and Valkey, without I/O.

The command line is a front end of this package and does not talk to the store itself. As in `headwater.groups`,
operations yield commands and receive replies.

    doctor           checks whether a store is fit for workers
    readiness        checks whether a store can be used now, for probes
    metrics          the metrics of a store
    entries          entries as text
    streams          the streams of a store, and the lag of their groups
    observation      the state of a group at one moment
    replication      the replicas of a server, its primary, and what is wrong with their links
    refusals         the reasons why a server refuses commands
    causes           the reasons why a group is stuck, decided from observations
    explaining       explanations from these three, for one group, one entry, or all groups
    retries          entries that wait for their retry
    scheduled        the scheduled messages of a stream, and their cancellation
    positions        moving a group's position, trimming a stream, with previews; counting entries in a range
    actions          claim, release and acknowledge pending entries, each with a preview; remove unused consumers
    records          the record of operators' actions, in a stream of its own
    rights           the rights that each kind of user needs, as rules of ACL SETUSER
    times            lengths of time as text
"""
