"""Images (checkpoints), and the catalog of the directory's files, with the time for which they are kept.

It imports disk, format and segments. Start with catalog.py.
"""
