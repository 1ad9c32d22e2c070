"""A consumer group: its position, consumers and pending entries, and the order in which they were delivered.

A group sees its stream as a `headwater.engine.shared.history.StreamHistory`. Start with group.py, then pending.py.
"""
