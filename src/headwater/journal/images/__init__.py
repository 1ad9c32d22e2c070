"""Images (checkpoints), and the catalog: which files the directory has, and which are kept for how long.

It imports disk, format and segments. Start with catalog.py.
"""
