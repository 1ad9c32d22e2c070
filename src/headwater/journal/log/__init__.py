"""The journal: writing, fsync, rotation, and recovery at a start.

It imports all other packages of the journal. Start with journal.py; recovery.py reads the journal at a start.
"""
