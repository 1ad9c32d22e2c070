"""A consumer group: its position, consumers and pending entries, and the order in which they were delivered.

It sees its stream as `headwater.engine.shared.history`. Start with group.py; pending.py has the pending entries list.
"""
