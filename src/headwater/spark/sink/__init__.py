"""The sink: writes rows as entries, for ``df.write`` and ``df.writeStream``.

    options.py     the sink's options
    columns.py     converts a column's values to the form of messages
    entries.py     encodes a record batch as XADDs
    wire.py        a connection that sends packets of many commands
    packs.py       the entries of a stage, each with many rows
    appending.py   sends XADDs to the server, many at a time
    marker.py      the record of a query's epochs and their stages
    destination.py notices that the stream or the record of batches was lost
    chunks.py      moves one chunk of a stage to the stream
    staging.py     writes the rows of one task, and returns its report
    publishing.py  publishes stages to the stream, each entry once
    batch.py, streaming.py   the writers that Spark calls

The steps by which an epoch is written exactly once, whichever process is killed (streaming.py by default, and
a batch write with a transaction):

    task    XADD  {dest}:hw:stage:<query>:<uuid>   packs of rows   expires in a day
    driver  HSET  {dest}:hw:sink:<query>           epoch, stages, position 0; PERSIST each stage
    driver  for each pack, one MULTI of the server:
                  XADD dest …                      the entries after the position
                  HSET {dest}:hw:sink:<query>      the position after them
                  EXPIRE the stage after its last pack; `done` after the last pack of all

Rule 1. A task draws a uuid for each attempt. No name contains a counter or a partition's number, because
        Spark may split and order a replayed epoch differently.
Rule 2. The recorded stages are published. A replayed epoch continues with them and drops its own rows, unless
        no entry was published yet and a recorded stage is gone.
Rule 3. No entry is visible before its stage is recorded, and every step is conditional on the position.
        Therefore any step may be repeated, by this driver or by one that was wrongly believed dead.
"""
