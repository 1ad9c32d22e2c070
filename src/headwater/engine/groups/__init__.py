"""A consumer group: its position, consumers and pending entries, and the order in which they were delivered.

It sees its stream as a `headwater.engine.shared.history.StreamHistory`. Start with group.py; pending.py has the list.
"""
