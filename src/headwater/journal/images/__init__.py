"""Images (checkpoints), the catalog of the directory's files, and the retention of old files.

It imports disk, format and segments. Start with catalog.py.
"""
