"""What becomes of an entry: acknowledged with its result, handed back, delayed, dead, replayed.

It imports the rooms for protocol, membership and reading. Start with settling.py.
"""
