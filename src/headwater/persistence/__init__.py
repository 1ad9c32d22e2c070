"""A store's state on disk: the engine's facts in the journal's files. It imports engine and journal.

    replaying.py  reads an image and the journal at the start, in steps
    progress.py   the progress of a replay
    applying.py   applies record groups to a keyspace
    building.py   writes an image
    source.py     reads the blobs of segments
    order.py      the server's order to a helper process, and the helper's report
    helper.py     the helper process
    process.py    starts the helper process and waits for its report
    digest.py     the digest of the sources: a helper of another version refuses the order
    reading.py    reads a store without changing it, for the tools of operators: backup.py, checking.py,
                  repairing.py, history.py, dumping.py, disk_use.py
See docs/adr/0049-checkpoints.md.
"""
