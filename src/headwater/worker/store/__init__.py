"""The connections of a worker to its store: one that reads, one that settles, one for leases. Clocks and waiting.

It does not know messages. It imports no other room. Start with connections.py.
"""
