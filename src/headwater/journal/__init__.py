"""Durable storage of record groups: the only package that opens data files. It does not import the engine.

    files.py      access to the file system
    content.py    the content of a file, read as far as it is needed
    system.py     its calls that differ between systems
    records.py    the record format
    checksum.py   its checksums, and the mask that binds a checksum to its position
    batches.py    reads groups, in pieces of a file and in batches
    names.py      names of files, and their order
    manifest.py   the text of MANIFEST
    catalog.py    reads and replaces MANIFEST, and removes what it does not name
    recovery.py   reads a journal: groups, tails, damage
    flipped.py    finds a flipped bit in the newest record
    failures.py   the texts of errors
    repair.py     makes the files match what was read
    starting.py   makes a recovered directory writable
    report.py     what recovery found, for callers of the store
    reserve.py    the next file, allocated before it is needed
    writing.py    the file that is being written
    flusher.py    the thread of ``appendfsync everysec``
    journal.py    append, group commit, rotation, fsync policy
    rotation.py   what a rotation returns
    images.py     writes and reads images
    closed.py     reads closed journal files
    statistics.py statistics for INFO
    reads.py      reads at any position, by any thread
    blobs.py      the format of blobs: closed blocks of entries
    segments.py   files of blobs, written once
    segment_reader.py   reads blobs by their places
    compaction.py copies live blobs out of segments that are mostly dead
See docs/adr/0007-journal.md and docs/adr/0048-images-and-manifest.md.
"""
