"""The sink: rows to entries, by ``df.write`` and ``df.writeStream``.

    options.py     what may be said
    columns.py     a column's values as messages write them
    entries.py     a record batch as XADDs
    appending.py   XADDs to the server, many at a time
    marker.py      what is recorded of a query's epochs, and the stages that are named there
    chunks.py      one step: a chunk of a stage to the stream
    staging.py     what a task writes, and what it reports
    publishing.py  from stages to the stream, each entry once
    batch.py, streaming.py   what Spark calls

How an epoch is written once, whatever is killed (streaming.py by default, and a batch write that
names a transaction):

    task    XADD  {dest}:hw:stage:<query>:<uuid>   1-0, 2-0, …    expires in a day
    driver  HSET  {dest}:hw:sink:<query>           epoch, stages, position 0; PERSIST each stage
    driver  chunk by chunk, each one step of the server:
                  XADD dest …                      the entries after the position
                  HSET {dest}:hw:sink:<query>      the position after them
                  UNLINK the stage, when it was the last of it; `done`, when it was the last of all

Rule 1. A uuid is drawn by the task for each attempt. Nothing is named by a counter or a partition's
        number: Spark may cut and order a replayed epoch differently.
Rule 2. What was recorded is what is published. A replay goes on with the recorded stages and drops
        its own rows, unless nothing was published yet and a recorded stage is gone.
Rule 3. Nothing is visible before it is recorded, and every step is conditional on the position, so
        any step may be tried again, by this driver or by one that was believed dead.
"""
