"""Durable storage of record groups: the only package that opens data files. It does not import the engine.

    files.py      access to the file system
    records.py    the record format
    checksum.py   its checksums, and the mask that binds a checksum to its position
    names.py      names of files, and their order
    recovery.py   reads a journal: groups, tails, damage
    repair.py     makes the files match what was read
    report.py     what recovery found, for callers of the store
    reserve.py    the next file, allocated before it is needed
    writing.py    the file that is being written
    flusher.py    the thread of ``appendfsync everysec``
    journal.py    append, group commit, rotation, fsync policy
    statistics.py statistics for INFO
See docs/adr/0007-journal.md.
"""
