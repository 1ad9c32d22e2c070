"""A stream: its entries, counters, groups and idempotent producers, and copies of streams.

It imports groups and shared. Start with stream.py.
"""
