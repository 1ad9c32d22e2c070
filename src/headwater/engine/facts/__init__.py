"""Facts: the records of all changes, as bytes, and how to read them.

It imports no other room: what a change means is in `headwater.engine.replay`. Start with facts.py, which lists
every fact with its fields.
"""
