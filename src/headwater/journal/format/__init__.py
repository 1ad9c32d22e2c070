"""The bytes of a data directory: records and record groups, checksums, MANIFEST, and the names of files.

It imports `headwater.journal.disk`. Start with records.py, the format of a journal record.
"""
