"""A stream: its entries, counters, groups and idempotent producers, and how it is copied.

It imports groups and shared. Start with stream.py.
"""
