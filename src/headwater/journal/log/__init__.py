"""The journal: writing, fsync, rotation, and recovery at a start.

It imports all other rooms of the journal. Start with journal.py; recovery.py reads the journal at a start.
"""
