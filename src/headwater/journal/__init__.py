"""Durable storage of record groups: the only package that opens data files. Of the engine, it imports only bodies.

    disk      files, their locks, and refusals of the operating system
    format    records, checksums, MANIFEST, names of files
    segments  the bodies of entries that are not in memory
    images    images, and the catalog of the directory
    log       append, group commit, rotation, fsync policy, recovery

See docs/adr/0007-journal.md and docs/adr/0048-images-and-manifest.md.
"""
