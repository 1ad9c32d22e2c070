"""The connections of a worker to its store: one that reads, one that settles, one for leases; clocks and waiting.

It knows no message. It imports no other room. Start with connections.py.
"""
