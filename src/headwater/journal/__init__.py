"""What is durable: the only room that opens data files. It knows no engine, only groups of facts.

    files.py      the door to the disk
    records.py    the record format
    recovery.py   reads a journal back: groups, tails, damage
    reserve.py    the next file, allocated before it is needed
    flusher.py    the thread of ``appendfsync everysec``
    journal.py    append, group commit, rotation, fsync policy
    statistics.py figures for INFO

See docs/adr/0007-journal.md.
"""
