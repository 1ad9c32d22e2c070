"""What is durable: the only room that opens data files. It knows no engine, only groups of facts.

    files.py      the door to the disk
    records.py    the record format
    checksum.py   its checksums, and the mask that binds one to its place
    names.py      names of files, and their order
    recovery.py   reads a journal back: groups, tails, damage
    repair.py     changes the disk to what was read back
    report.py     what was found, for callers of the store
    reserve.py    the next file, allocated before it is needed
    writing.py    the file that is written
    flusher.py    the thread of ``appendfsync everysec``
    journal.py    append, group commit, rotation, fsync policy
    statistics.py figures for INFO

See docs/adr/0007-journal.md.
"""
