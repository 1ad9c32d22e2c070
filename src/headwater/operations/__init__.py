"""What an operator asks of a store and does to it, on Headwater, Redis and Valkey, without I/O.

The command line is a front end of this package; it does not talk to the store itself. As in `headwater.groups`,
operations yield commands and receive replies.

    doctor           whether a store is fit for workers
    readiness        whether a store can be used now, for probes
    metrics          the metrics of a store
    entries          entries as text
    streams          which streams there are, and how far each group of them is behind
    observation      what a group looks like at one moment
    refusals         why the server refuses commands
    causes           why a group is stuck, decided from observations
    explaining       the three above, for one group, one entry, or all
    retries          entries that wait for their retry
    positions        moving a group's position, trimming a stream, with previews
    counting         how many entries there are in a range
    actions          claim, release and acknowledge pending entries, each with a preview; remove unused consumers
    records          who did what, in a stream of its own
"""
