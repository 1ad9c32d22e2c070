"""The journal: writing, fsync, rotation, and its recovery at a start.

It imports all other rooms of the journal. Start with journal.py; recovery.py has the start.
"""
